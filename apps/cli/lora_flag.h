// The flag --lora, which `shoal train` and `shoal plan` have in common; models/lora.h reads it.
#pragma once

#include <CLI/CLI.hpp>

#include <string>

namespace shoal::cli {

inline void add_lora(CLI::App& verb, std::string& text) {
  verb.add_option("--lora", text,
                  "freeze the model and train adapters beside its matrices: r=16,alpha=32, and if you like "
                  "targets=q_proj+v_proj or targets=all-linear (left out: what makes queries and values) and "
                  "dropout=0.05")
      ->check([](const std::string& given) {
        return given.empty() ? std::string("is empty. Give r and alpha, as in r=16,alpha=32.") : std::string();
      });
}

}  // namespace shoal::cli
