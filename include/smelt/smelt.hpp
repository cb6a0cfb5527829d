// All of smelt for a host compiler: specs, budgets, the CPU backend, models and their training. Never CUDA.
#pragma once

#include <smelt/budget/check.hpp>
#include <smelt/budget/flops.hpp>
#include <smelt/budget/kv_cache.hpp>
#include <smelt/budget/match.hpp>
#include <smelt/budget/parameters.hpp>
#include <smelt/kernels/cpu/backend.hpp>
#include <smelt/kernels/cpu/default_executor.hpp>
#include <smelt/model/language_model.hpp>
#include <smelt/spec/arch.hpp>
#include <smelt/spec/published.hpp>
#include <smelt/train/bigram.hpp>
#include <smelt/train/trainer.hpp>
