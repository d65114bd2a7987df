//! A line chart as SVG: axes with ticks, labels, a legend. Colours are for light and dark pages, and lines
//! differ in their dashes too.

use std::fmt::Write as _;

use super::scale::{Scale, label};

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 420.0;
/// Of the field that the lines are in.
const LEFT: f64 = 72.0;
const RIGHT: f64 = WIDTH - 24.0;
const BOTTOM: f64 = HEIGHT - 56.0;
/// Without the legend: each of its lines takes so much more.
const TOP: f64 = 48.0;
const LEGEND_LINE: f64 = 20.0;

/// By series, in turn: colour and dashes.
const STROKES: [(&str, &str); 4] = [
    ("#2f81f7", ""),
    ("#e16f24", "6 4"),
    ("#8957e5", "2 3"),
    ("#2da44e", "9 3 2 3"),
];
const STYLE: &str = "<style>text{font:13px system-ui,sans-serif;fill:#57606a}.title{font-size:16px;font-weight:600}\
    .grid{stroke:#8c959f;stroke-opacity:.3}.axis{stroke:#8c959f}\
    @media(prefers-color-scheme:dark){text{fill:#9ea7b1}}</style>";

#[derive(Clone, Debug, Default)]
pub struct Chart {
    pub title: String,
    pub x_label: String,
    pub y_label: String,
    pub series: Vec<Series>,
}

#[derive(Clone, Debug)]
pub struct Series {
    pub name: String,
    pub points: Vec<(f64, f64)>,
}

impl Chart {
    /// Puts a point into the series of this name, in the place of one that is there.
    pub fn put(&mut self, series: &str, x: f64, y: f64) {
        let place = self.series.iter().position(|known| known.name == series);
        let place = place.unwrap_or_else(|| {
            self.series.push(Series {
                name: series.to_owned(),
                points: Vec::new(),
            });
            self.series.len() - 1
        });
        let points = &mut self.series[place].points;
        points.retain(|point| point.0 != x);
        points.push((x, y));
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
    }

    /// Whether there is a line to draw.
    pub fn is_line(&self) -> bool {
        self.series.iter().any(|series| series.points.len() > 1)
    }

    pub fn svg(&self) -> String {
        let points = || self.series.iter().flat_map(|series| &series.points);
        let x = Scale::around(points().map(|point| point.0));
        let y = Scale::from_zero(points().map(|point| point.1));
        let top = TOP + LEGEND_LINE * self.series.len().div_ceil(2) as f64;
        let across = |value: f64| LEFT + x.place(value) * (RIGHT - LEFT);
        let up = |value: f64| BOTTOM - y.place(value) * (BOTTOM - top);

        let mut svg = String::new();
        // Writing to a string does not fail.
        let _ = write!(
            svg,
            r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{title}">{STYLE}<text class="title" x="{LEFT}" y="26">{title}</text>"#,
            title = escaped(&self.title),
        );
        for tick in y.ticks() {
            let (at, text) = (up(tick), label(tick));
            let _ = write!(
                svg,
                r#"<line class="grid" x1="{LEFT}" y1="{at:.1}" x2="{RIGHT}" y2="{at:.1}"/><text x="{}" y="{:.1}" text-anchor="end">{text}</text>"#,
                LEFT - 8.0,
                at + 4.0,
            );
        }
        for tick in x.ticks() {
            let (at, text) = (across(tick), label(tick));
            let _ = write!(
                svg,
                r#"<line class="axis" x1="{at:.1}" y1="{BOTTOM}" x2="{at:.1}" y2="{}"/><text x="{at:.1}" y="{}" text-anchor="middle">{text}</text>"#,
                BOTTOM + 5.0,
                BOTTOM + 20.0,
            );
        }
        let _ = write!(
            svg,
            r#"<line class="axis" x1="{LEFT}" y1="{BOTTOM}" x2="{RIGHT}" y2="{BOTTOM}"/><text x="{}" y="{}" text-anchor="middle">{}</text><text x="16" y="{middle}" text-anchor="middle" transform="rotate(-90 16 {middle})">{}</text>"#,
            f64::midpoint(LEFT, RIGHT),
            HEIGHT - 14.0,
            escaped(&self.x_label),
            escaped(&self.y_label),
            middle = f64::midpoint(top, BOTTOM),
        );
        for (number, series) in self.series.iter().enumerate() {
            let (colour, dashes) = STROKES[number % STROKES.len()];
            let stroke =
                format!(r#"stroke="{colour}" stroke-width="2" stroke-dasharray="{dashes}""#);
            legend(&mut svg, number, &series.name, &stroke);
            let path: Vec<String> = series
                .points
                .iter()
                .map(|(x, y)| format!("{:.1},{:.1}", across(*x), up(*y)))
                .collect();
            let _ = write!(
                svg,
                r#"<polyline points="{}" fill="none" {stroke}/>"#,
                path.join(" ")
            );
            for (x, y) in &series.points {
                let _ = write!(
                    svg,
                    r#"<circle cx="{:.1}" cy="{:.1}" r="3.5" fill="{colour}"><title>{}: {y:.2} at {x}</title></circle>"#,
                    across(*x),
                    up(*y),
                    escaped(&series.name),
                );
            }
        }
        svg.push_str("</svg>\n");
        svg
    }
}

/// Two entries a line, below the title.
fn legend(svg: &mut String, number: usize, name: &str, stroke: &str) {
    let x = LEFT + (number % 2) as f64 * (RIGHT - LEFT) / 2.0;
    let y = TOP + LEGEND_LINE * (number / 2) as f64;
    let _ = write!(
        svg,
        r#"<line x1="{x}" y1="{y}" x2="{}" y2="{y}" {stroke}/><text x="{}" y="{}">{}</text>"#,
        x + 28.0,
        x + 36.0,
        y + 4.0,
        escaped(name),
    );
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart() -> Chart {
        let mut chart = Chart {
            title: "a < b & \"c\"".to_owned(),
            x_label: "sessions".to_owned(),
            y_label: "events/s".to_owned(),
            series: Vec::new(),
        };
        for (x, y) in [(1_000.0, 200.0), (10.0, 100.0), (100_000.0, 0.0)] {
            chart.put("ours", x, y);
        }
        chart
    }

    /// The elements that a text opens are closed in order, and every `&` begins an entity.
    fn assert_well_formed(text: &str) {
        let mut open = Vec::new();
        let mut rest = text;
        while let Some(begin) = rest.find('<') {
            let (before, tag) = rest.split_at(begin);
            for entity in before.split('&').skip(1) {
                assert!(
                    ["amp;", "lt;", "gt;", "quot;"]
                        .iter()
                        .any(|e| entity.starts_with(e)),
                    "{entity}"
                );
            }
            let end = tag.find('>').expect("a tag ends");
            let inside = &tag[1..end];
            if let Some(name) = inside.strip_prefix('/') {
                assert_eq!(open.pop(), Some(name.to_owned()));
            } else {
                assert_eq!(inside.matches('"').count() % 2, 0, "{inside}");
                let name = inside.split_whitespace().next().expect("a name");
                if !inside.ends_with('/') {
                    open.push(name.to_owned());
                }
            }
            rest = &tag[end + 1..];
        }
        assert_eq!(open, Vec::<String>::new());
        assert_eq!(rest.trim(), "");
    }

    #[test]
    fn a_chart_is_well_formed_whatever_its_texts_hold() {
        let svg = chart().svg();
        assert_well_formed(&svg);
        assert!(svg.contains("a &lt; b &amp; &quot;c&quot;"));
        assert!(svg.contains(">sessions</text>") && svg.contains(">events/s</text>"));
        assert!(svg.contains("prefers-color-scheme:dark"));
        assert_well_formed(&Chart::default().svg());
    }

    #[test]
    fn points_are_where_their_values_belong() {
        let svg = chart().svg();
        // Logarithmic from 10 to 100,000; from 0 to 200 upwards, below one line of legend.
        let (middle, top) = (f64::midpoint(LEFT, RIGHT), TOP + LEGEND_LINE);
        let line = format!(
            r#"points="{LEFT:.1},{:.1} {middle:.1},{top:.1} {RIGHT:.1},{BOTTOM:.1}""#,
            f64::midpoint(top, BOTTOM)
        );
        assert!(svg.contains(&line), "{line} is not in {svg}");
        for tick in ["10", "100", "1k", "10k", "100k"] {
            assert!(
                svg.contains(&format!(r#"text-anchor="middle">{tick}</text>"#)),
                "{tick}"
            );
        }
    }

    #[test]
    fn a_later_value_takes_the_place_of_an_earlier_one() {
        let mut chart = chart();
        chart.put("ours", 10.0, 50.0);
        let series = &chart.series[0];
        assert_eq!(
            series.points,
            [(10.0, 50.0), (1_000.0, 200.0), (100_000.0, 0.0)]
        );
    }
}
