// All of smelt for a host compiler: specs, budgets, the CPU backend, models, their files, training, inference and
// probes. Never CUDA. The plain-loop backend is left out: it is what the others are tested against
// (kernels/reference/backend.hpp). So are scaling laws, which know nothing of models (law/fit.hpp).
#pragma once

#include <smelt/budget/ablations.hpp>
#include <smelt/budget/check.hpp>
#include <smelt/budget/equal_flops.hpp>
#include <smelt/budget/flops.hpp>
#include <smelt/budget/kv_cache.hpp>
#include <smelt/budget/match.hpp>
#include <smelt/budget/match_report.hpp>
#include <smelt/budget/memory.hpp>
#include <smelt/budget/parameters.hpp>
#include <smelt/budget/presets.hpp>
#include <smelt/budget/sparsity.hpp>
#include <smelt/budget/table.hpp>
#include <smelt/infer/decoder.hpp>
#include <smelt/infer/with_visits.hpp>
#include <smelt/io/spec_json.hpp>
#include <smelt/kernels/cpu/backend.hpp>
#include <smelt/kernels/cpu/default_executor.hpp>
#include <smelt/kernels/cpu/serial_executor.hpp>
#include <smelt/model/language_model.hpp>
#include <smelt/probe/causality.hpp>
#include <smelt/probe/expert_overlap.hpp>
#include <smelt/probe/probe_weights.hpp>
#include <smelt/probe/writeback_means.hpp>
#include <smelt/spec/arch.hpp>
#include <smelt/spec/published.hpp>
#include <smelt/spec/validate.hpp>
#include <smelt/train/bigram.hpp>
#include <smelt/train/log.hpp>
#include <smelt/train/trainer.hpp>
