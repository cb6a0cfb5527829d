// How is a report written? As one HTML file that needs no network, follows the light or dark scheme, and can be read
// aloud.
#pragma once

#include <string>
#include <string_view>

#include "plot.hpp"
#include "table.hpp"

namespace smelt::tool {

/// An HTML document under construction. Every text is escaped; tables and plots are inlined.
class html_document {
 public:
  explicit html_document(std::string title) : title_(std::move(title)) {}

  void heading(std::string_view text) { body_ += "<h2>" + escaped(text) + "</h2>\n"; }
  void paragraph(std::string_view text) { body_ += "<p>" + escaped(text) + "</p>\n"; }
  void add(const table& t) { body_ += to_html(t); }
  void add(const plot& p) { body_ += "<figure>\n" + to_svg(p) + "</figure>\n"; }
  void add(const plot_grid& g) { body_ += "<figure>\n" + to_svg(g) + "</figure>\n"; }
  /// Text kept as it stands, such as commands.
  void verbatim(std::string_view text) { body_ += "<pre><code>" + escaped(text) + "</code></pre>\n"; }

  /// The whole document.
  [[nodiscard]] std::string text() const {
    return "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
           "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
           "<meta name=\"color-scheme\" content=\"light dark\">\n<title>" +
           escaped(title_) + "</title>\n" + R"(<style>
:root { --ink: #1b1f24; --paper: #ffffff; --faint: #d8dee4; --shade: #f4f6f8; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6edf3; --paper: #0d1117; --faint: #30363d; --shade: #161b22; } }
body { color: var(--ink); background: var(--paper); font: 16px/1.5 system-ui, sans-serif; max-width: 60rem;
  margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; margin: 1rem 0 0.25rem; }
caption { text-align: left; font-weight: 600; padding-bottom: 0.4rem; }
th, td { padding: 0.25rem 0.75rem; border-bottom: 1px solid var(--faint); text-align: left; font-weight: normal; }
tbody th { white-space: pre-wrap; } thead th { font-weight: 600; } .number { text-align: right; }
.wide, pre { overflow-x: auto; } .note { margin: 0.1rem 0; font-size: 0.875rem; }
figure { margin: 1.5rem 0; } h1 { overflow-wrap: anywhere; } pre { background: var(--shade); padding: 0.75rem 1rem; font-size: 0.875rem; }
</style>
</head>
<body>
<main>
<h1>)" + escaped(title_) +
           "</h1>\n" + body_ + "</main>\n</body>\n</html>\n";
  }

 private:
  std::string title_;
  std::string body_;
};

}  // namespace smelt::tool
