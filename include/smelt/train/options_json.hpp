// How do logs and checkpoints write the options of a run?
#pragma once

#include <nlohmann/json.hpp>
#include <smelt/train/options.hpp>

namespace smelt {

/// The options as logs and checkpoints keep them: all that decide the numbers of a run, and so not recomputation.
[[nodiscard]] inline nlohmann::json to_json(const train_options& o) {
  nlohmann::json json = {{"tokens", o.tokens},
                         {"length", o.length},
                         {"sequences", o.sequences},
                         {"accumulation", o.accumulation},
                         {"learning_rate", o.learning_rate},
                         {"warmup_share", o.warmup_share},
                         {"decay", name_of(o.decay)},
                         {"decay_share", o.decay_share},
                         {"final_share", o.final_share},
                         {"weight_decay", o.weight_decay},
                         {"beta1", o.beta1},
                         {"beta2", o.beta2},
                         {"eps", o.eps},
                         {"clip", o.clip},
                         {"balance", o.balance},
                         {"z", o.z},
                         {"balance_bias_step", o.balance_bias_step},
                         {"document_masks", o.document_masks},
                         {"seed", o.seed},
                         {"largest_skip_run", o.largest_skip_run},
                         {"optimizer", name_of(o.optimizer)}};
  if (o.optimizer == optimizer_kind::muon) json["momentum"] = o.momentum;
  return json;
}

}  // namespace smelt
