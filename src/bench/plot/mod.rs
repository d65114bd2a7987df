//! Results as line charts: which figures belong together. Drawing is `chart`'s.

mod chart;
mod scale;

use chart::{Chart, Series};

use super::cost::Cost;
use super::report::{Line, Place, Trend, Window};

/// A drawing, by the name of its file without the ending.
pub struct Plot {
    pub name: String,
    pub svg: String,
}

/// All charts that the lines have two figures or more for. Of two figures for one place the later is drawn.
#[must_use]
pub fn plots(lines: &[Line]) -> Vec<Plot> {
    let mut named: Vec<(String, Chart)> = Vec::new();
    for line in lines {
        match line {
            Line::Comparison(line) => {
                if let Some(place) = &line.place {
                    let chart = entry(&mut named, &line.bench, || {
                        chart(&format!("{}: events/s", line.bench), place, "events/s")
                    });
                    chart.put("Lanekeeper", place.at, line.value);
                    chart.put(&line.against, place.at, line.reference);
                }
            }
            Line::Costs(line) => {
                let (Some(place), Some(ours), Some(reference)) =
                    (&line.place, cpu(&line.value), cpu(&line.reference))
                else {
                    continue;
                };
                let title = format!("{}: CPU of an event, server and clients", line.bench);
                let chart = entry(&mut named, &format!("{}-cpu", line.bench), || {
                    chart(&title, place, "µs")
                });
                chart.put("Lanekeeper", place.at, ours);
                chart.put(&line.against, place.at, reference);
            }
            Line::Trend(line) => {
                for (name, drawn) in trend(line) {
                    *entry(&mut named, &name, Chart::default) = drawn;
                }
            }
            Line::Environment(_) | Line::Distribution(_) | Line::Size(_) => {}
        }
    }
    named
        .into_iter()
        .filter(|(_, chart)| chart.is_line())
        .map(|(name, chart)| Plot {
            svg: chart.svg(),
            name,
        })
        .collect()
}

fn entry<'a>(
    named: &'a mut Vec<(String, Chart)>,
    name: &str,
    new: impl FnOnce() -> Chart,
) -> &'a mut Chart {
    let place = named.iter().position(|(known, _)| known == name);
    let place = place.unwrap_or_else(|| {
        named.push((name.to_owned(), new()));
        named.len() - 1
    });
    &mut named[place].1
}

fn chart(title: &str, place: &Place, unit: &str) -> Chart {
    Chart {
        title: title.to_owned(),
        x_label: place.axis.clone(),
        y_label: unit.to_owned(),
        series: Vec::new(),
    }
}

fn cpu(cost: &Cost) -> Option<f64> {
    Some(cost.server_cpu_us? + cost.client_cpu_us?)
}

/// Latency and rate against the time for which the snapshot was held.
fn trend(line: &Trend) -> [(String, Chart); 2] {
    let series = |name: &str, windows: &[Window], figure: fn(&Window) -> f64| Series {
        name: name.to_owned(),
        points: windows.iter().map(|w| (w.to_s, figure(w))).collect(),
    };
    let (with, without) = (&line.windows[..], &line.reference_windows[..]);
    let chart = |what: &str, y_label: &str, series| Chart {
        title: format!("{}: {what}", line.bench),
        x_label: "age of the snapshot, s".to_owned(),
        y_label: y_label.to_owned(),
        series,
    };
    [
        (
            line.bench.clone(),
            chart(
                "answer to delivery",
                "ms",
                vec![
                    series("p99, snapshot held", with, |w| w.p99_ms),
                    series("p99, without", without, |w| w.p99_ms),
                    series("p50, snapshot held", with, |w| w.p50_ms),
                    series("p50, without", without, |w| w.p50_ms),
                ],
            ),
        ),
        (
            format!("{}-rate", line.bench),
            chart(
                "deliveries per second",
                "events/s",
                vec![
                    series("snapshot held", with, |w| w.delivered_per_second),
                    series("without", without, |w| w.delivered_per_second),
                ],
            ),
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::super::measure::Pairs;
    use super::super::report::Comparison;
    use super::*;

    fn comparison(at: usize, value: f64) -> Line {
        let mut pairs = Pairs::default();
        pairs.push(value, 50.0);
        let case = ("backlog", format!("{at}"));
        Line::Comparison(Comparison::new(case, "row queue", pairs, None).at("events waiting", at))
    }

    #[test]
    fn figures_of_one_workload_are_one_chart() {
        let mut lines = vec![comparison(10, 100.0), comparison(1_000, 90.0)];
        // Without a place it belongs to no chart.
        let Line::Comparison(mut alone) = comparison(5, 1.0) else {
            unreachable!("made above")
        };
        alone.place = None;
        lines.push(Line::Comparison(alone));
        let plots = plots(&lines);
        let names: Vec<&str> = plots.iter().map(|plot| &*plot.name).collect();
        assert_eq!(names, ["backlog"]);
        assert_eq!(plots[0].svg.matches("<circle").count(), 4);
    }

    #[test]
    fn a_trend_is_drawn_as_latency_and_as_rate() {
        let windows: Vec<Window> = (0..3)
            .map(|n| Window {
                to_s: f64::from(n) * 10.0,
                p99_ms: 3.0,
                ..Window::default()
            })
            .collect();
        let line = Line::Trend(Trend {
            ratio: 1.0,
            target: 1.25,
            met: true,
            reference_ratio: 1.0,
            rate_kept: 1.0,
            bench: "held-snapshot".to_owned(),
            case: String::new(),
            asked_per_second: 2_000.0,
            against: String::new(),
            ratios: vec![1.0],
            reference_ratios: vec![1.0],
            windows: windows.clone(),
            reference_windows: windows,
        });
        let plots = plots(&[line]);
        let names: Vec<&str> = plots.iter().map(|plot| &*plot.name).collect();
        assert_eq!(names, ["held-snapshot", "held-snapshot-rate"]);
        assert_eq!(plots[0].svg.matches("<polyline").count(), 4);
    }
}
