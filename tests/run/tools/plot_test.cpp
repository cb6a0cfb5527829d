#include "../../../tools/smelt/plot.hpp"

#include <limits>
#include <string>

#include "../../../tools/smelt/html.hpp"
#include "catch.hpp"

using namespace smelt::tool;
using Catch::Matchers::ContainsSubstring;

namespace {

constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();

plot losses() {
  return {.title = "Loss of <nano> & \"friends\"",
          .x_label = "tokens",
          .y_label = "nats/token",
          .curves = {{"nano", {{1e3, 5}, {1e4, 3}, {1e5, 2}}}, {"nano-smelt", {{1e3, 5}, {1e4, 2.5}, {1e5, 1.5}}}},
          .levels = {{"bigram entropy", 2.25}}};
}

std::size_t occurrences(const std::string& text, const std::string& part) {
  std::size_t n = 0;
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + part.size())) ++n;
  return n;
}

}  // namespace

TEST_CASE("an SVG plot draws every point where its values belong", "[tools][plot]") {
  plot p = losses();
  p.log_x = true;
  const std::string svg = to_svg(p, 760, 420);
  // The x axis spans 1e3..1e5 on 64..742, the y axis 1.5..5 (whole steps of 0.5) on 368..40.
  CHECK_THAT(svg, ContainsSubstring("d=\"M64.0 40.0 L403.0 227.4 L742.0 321.1 \""));
  CHECK_THAT(svg, ContainsSubstring("d=\"M64.0 40.0 L403.0 274.3 L742.0 368.0 \""));
  CHECK_THAT(svg, ContainsSubstring("bigram entropy 2.250"));
  CHECK_THAT(svg, ContainsSubstring("tokens (log scale)"));
  CHECK_THAT(svg, ContainsSubstring("<title>Loss of &lt;nano&gt; &amp; &quot;friends&quot;</title>"));
  CHECK_THAT(svg, ContainsSubstring("nano-smelt: from 5.000 to 1.500."));
  CHECK_THAT(svg, ContainsSubstring("prefers-color-scheme: dark"));
  CHECK(occurrences(svg, "<svg") == 1);
  CHECK(svg.find("http://") == svg.find("http://www.w3.org/2000/svg"));
  CHECK(occurrences(svg, "http") == 1);
  for (const char* label : {">1k<", ">10k<", ">100k<", ">5.0<", ">1.5<"}) CHECK_THAT(svg, ContainsSubstring(label));
}

TEST_CASE("points that cannot be drawn break the line and nothing else", "[tools][plot]") {
  plot p = losses();
  p.title = "Loss";  // "nano" would hide a "nan"
  p.log_x = true;
  p.curves = {{"broken", {{0, 9}, {1e3, 1}, {1e4, not_a_number}, {1e5, 2}, {-1, 3}}}};
  p.levels = {{"unknown", not_a_number}};
  const std::string svg = to_svg(p);
  CHECK(occurrences(svg, "M") >= 2);
  CHECK(svg.find("nan") == std::string::npos);
  CHECK(svg.find("inf") == std::string::npos);
  CHECK(to_text(p).find("nan") == std::string::npos);
}

TEST_CASE("plots without a range are still plots", "[tools][plot]") {
  for (const bool log_x : {false, true})
    for (const auto& points : {std::vector<point>{}, std::vector<point>{{5, 2}}, std::vector<point>{{5, 0}, {5, 0}},
                               std::vector<point>{{1, 1e300}, {2, 1e300}}}) {
      plot p = losses();
      p.title = "Loss";  // "nano" would hide a "nan"
      p.log_x = log_x;
      p.levels.clear();
      p.curves = {{"one", points}};
      for (const std::string& drawn : {to_svg(p), to_text(p)}) {
        CHECK(drawn.find("nan") == std::string::npos);
        CHECK(drawn.find("inf") == std::string::npos);
      }
    }
}

TEST_CASE("a terminal plot shows curves, crossings and reference lines", "[tools][plot]") {
  const std::string text = to_text(losses(), 41, 8);
  CHECK_THAT(text, ContainsSubstring("5.0 + *"));
  CHECK_THAT(text, ContainsSubstring(" . ."));
  CHECK_THAT(text, ContainsSubstring("a  nano\n"));
  CHECK_THAT(text, ContainsSubstring("b  nano-smelt\n"));
  CHECK_THAT(text, ContainsSubstring("bigram entropy 2.250"));
  CHECK(text.find(" \n") == std::string::npos);
}

TEST_CASE("a long curve is thinned and keeps its ends", "[tools][plot]") {
  std::vector<point> many;
  for (int i = 0; i < 100'000; ++i) many.push_back({static_cast<double>(i), 1});
  const auto few = thinned(many, 1'000);
  REQUIRE(few.size() == 1'000);
  CHECK(few.front().x == 0);
  CHECK(few.back().x == 99'999);
  CHECK(thinned(few, 1'000).size() == 1'000);
}

TEST_CASE("tables align on a terminal and escape in HTML", "[tools][table]") {
  const table t{"Budgets", {{"metric", false}, {"é"}}, {{"a<b", "1,234"}, {"µ"}}, {"bytes & more"}};
  CHECK(to_text(t) == "Budgets\n  metric      é\n  ------  -----\n  a<b     1,234\n  µ\n  bytes & more\n");
  const std::string html = to_html(t);
  CHECK_THAT(html, ContainsSubstring("<th scope=\"row\">a&lt;b</th><td class=\"number\">1,234</td>"));
  CHECK_THAT(html, ContainsSubstring("bytes &amp; more"));
}

TEST_CASE("a report is one document without outside references", "[tools][html]") {
  html_document report("nano <against> nano-smelt");
  report.heading("Loss");
  report.add(losses());
  report.verbatim("smelt compare 'nano' \"x\" > y");
  const std::string html = report.text();
  CHECK(html.rfind("<!DOCTYPE html>\n<html lang=\"en\">", 0) == 0);
  CHECK_THAT(html, ContainsSubstring("<h1>nano &lt;against&gt; nano-smelt</h1>"));
  CHECK_THAT(html, ContainsSubstring("smelt compare &#39;nano&#39; &quot;x&quot; &gt; y"));
  for (const char* outside : {"src=", "href=", "@import", "url(", "https:"})
    CHECK(html.find(outside) == std::string::npos);
}
