//! A sparkline: the rates of ten minutes as a drawing without axes. Its numbers stand beside it as text.

use std::fmt::Write as _;

use maud::{Markup, html};

const WIDTH: f64 = 120.0;
const HEIGHT: f64 = 24.0;
/// Points at the most; as many rates as the figures keep.
const POINTS: usize = 120;

/// Rates, the oldest first. The newest stands at the right edge.
pub(crate) fn spark(rates: &[f64], name: &str) -> Markup {
    let rates = &rates[rates.len().saturating_sub(POINTS)..];
    let highest = rates.iter().copied().fold(0.0, f64::max);
    let label = format!(
        "{name}: delivered per second by this worker over the last ten minutes, at most {}",
        super::format::rate(highest)
    );
    html! {
        svg.spark viewBox={ "0 0 " (WIDTH) " " (HEIGHT) } width=(WIDTH) height=(HEIGHT) role="img" aria-label=(label) preserveAspectRatio="none" {
            line.base x1="0" x2=(WIDTH) y1=(HEIGHT - 0.5) y2=(HEIGHT - 0.5) {}
            @if rates.len() > 1 && highest > 0.0 {
                @let line = path(rates, highest);
                path.area d={ (line) "V" (HEIGHT) "H" (left(rates.len(), 0)) "Z" } {}
                path.line d=(line) {}
            }
        }
    }
}

fn left(points: usize, at: usize) -> f64 {
    let step = WIDTH / (POINTS - 1) as f64;
    WIDTH - (points - 1 - at) as f64 * step
}

fn path(rates: &[f64], highest: f64) -> String {
    let mut path = String::new();
    for (at, rate) in rates.iter().enumerate() {
        let height = HEIGHT - 1.5 - rate / highest * (HEIGHT - 3.0);
        let command = if at == 0 { 'M' } else { 'L' };
        // A String takes everything that is written.
        let _ = write!(path, "{command}{:.1} {height:.1}", left(rates.len(), at));
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_rate_is_at_the_right_edge_and_the_highest_at_the_top() {
        assert_eq!(path(&[0.0, 4.0], 4.0), "M119.0 22.5L120.0 1.5");
        let empty = spark(&[], "audit").into_string();
        assert!(!empty.contains("path"), "{empty}");
        let many = spark(&vec![1.0; 1_000], "audit").into_string();
        assert!(!many.contains("M-"), "{many}");
    }

    #[test]
    fn a_name_is_escaped() {
        let drawn = spark(&[], "<script>\"").into_string();
        assert!(drawn.contains("&lt;script&gt;&quot;") && !drawn.contains("<script>"));
    }
}
