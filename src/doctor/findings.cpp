// See findings.h.
#include "doctor/findings.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/json.h"

namespace shoal::doctor {

namespace {

const char* name_of(Health health) {
  switch (health) {
    case Health::good: return "good";
    case Health::poor: return "poor";
    case Health::missing: return "missing";
  }
  return "?";
}

}  // namespace

bool lets_train(const std::vector<Finding>& findings) {
  return std::none_of(findings.begin(), findings.end(), [](const Finding& finding) {
    return finding.health == Health::missing && finding.subject != "GPU" && finding.subject != "driver";
  });
}

std::string to_text(const std::vector<Finding>& findings) {
  std::string text;
  for (const Finding& finding : findings) {
    text += fmt::format("{:<8} {:<14} {}\n", name_of(finding.health), finding.subject, finding.text);
    if (!finding.remedy.empty()) text += fmt::format("{:<8} {:<14} {}\n", "", "", finding.remedy);
  }
  return text;
}

std::string to_json(const std::vector<Finding>& findings) {
  json::Value list = json::Array{};
  for (const Finding& finding : findings) {
    json::Value entry = json::Object{};
    entry.set("subject", finding.subject);
    entry.set("health", name_of(finding.health));
    entry.set("text", finding.text);
    entry.set("remedy", finding.remedy);
    list.as_array().push_back(entry);
  }
  return json::write(list, 2);
}

}  // namespace shoal::doctor
