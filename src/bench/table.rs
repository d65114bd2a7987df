//! The results as a Markdown table: ratios first, then what has no ratio.

use std::fmt::Write as _;

use super::report::{Comparison, Costs, Distribution, Line, Size, Trend};

const HEAD: &str = "| ratio or figure | target | | workload | measured | compared with |\n|---|---|---|---|---|---|\n";

/// All lines, under the environments in which they were measured.
#[must_use]
pub fn markdown(lines: &[Line]) -> String {
    let mut text = String::new();
    let mut environments: Vec<String> = Vec::new();
    for line in lines {
        if let Line::Environment(environment) = line {
            let environment = environment.to_string().replace('\n', ". ");
            if !environments.contains(&environment) {
                environments.push(environment);
            }
        }
    }
    for environment in environments {
        // Writing to a string does not fail.
        let _ = writeln!(text, "{environment}.\n");
    }
    text.push_str(HEAD);
    let mut rows: Vec<(u8, [String; 6])> = lines.iter().filter_map(row).collect();
    rows.sort_by_key(|(rank, _)| *rank);
    for (_, cells) in rows {
        let _ = writeln!(
            text,
            "| {} |",
            cells.map(|cell| cell.replace('|', "\\|")).join(" | ")
        );
    }
    text
}

/// Where it belongs, and its cells.
fn row(line: &Line) -> Option<(u8, [String; 6])> {
    match line {
        Line::Environment(_) => None,
        Line::Comparison(line) => Some((0, comparison(line))),
        Line::Trend(line) => Some((0, trend(line))),
        Line::Distribution(line) => Some((1, distribution(line))),
        Line::Size(line) => Some((1, size(line))),
        Line::Costs(line) => Some((2, costs(line))),
    }
}

fn comparison(line: &Comparison) -> [String; 6] {
    [
        format!("{:.2}", line.ratio),
        line.target
            .map_or_else(String::new, |t| format!("≥ {t:.2}")),
        met(line.met),
        format!("{} {}", line.bench, line.case),
        format!("{} {}", grouped(line.value), line.unit),
        format!("{}, {}", grouped(line.reference), line.against),
    ]
}

fn trend(line: &Trend) -> [String; 6] {
    let ends = |windows: &[super::report::Window]| match (windows.first(), windows.last()) {
        (Some(first), Some(last)) => {
            format!("p99 {:.2} to {:.2} ms", first.p99_ms, last.p99_ms)
        }
        _ => String::new(),
    };
    [
        format!("{:.2}", line.ratio),
        format!("≤ {:.2}", line.target),
        met(Some(line.met)),
        format!("{} {}", line.bench, line.case),
        format!(
            "{}, {:.0} % of the rate",
            ends(&line.windows),
            line.rate_kept * 100.0
        ),
        format!(
            "{:.2}: {}, {}",
            line.reference_ratio,
            ends(&line.reference_windows),
            line.against
        ),
    ]
}

fn distribution(line: &Distribution) -> [String; 6] {
    let target = |name, target: Option<f64>| target.map(|t| format!("{name} < {t} ms"));
    let targets = [
        target("p50", line.target_p50_ms),
        target("p99", line.target_p99_ms),
    ];
    [
        format!("p50 {:.2} ms, p99 {:.2} ms", line.p50_ms, line.p99_ms),
        targets.into_iter().flatten().collect::<Vec<_>>().join(", "),
        met(line.met),
        format!("{} {}", line.bench, line.case),
        format!(
            "p95 {:.2} ms, at most {:.2} ms, {} samples",
            line.p95_ms,
            line.max_ms,
            grouped(line.samples as f64)
        ),
        String::new(),
    ]
}

fn size(line: &Size) -> [String; 6] {
    [
        format!("{:.1} MiB", line.mib),
        format!("< {:.0} MiB", line.target_mib),
        met(Some(line.met)),
        format!("{} {}", line.bench, line.case),
        String::new(),
        String::new(),
    ]
}

fn costs(line: &Costs) -> [String; 6] {
    [
        String::new(),
        String::new(),
        String::new(),
        format!("each event of {} {}", line.bench, line.case),
        line.value.to_string(),
        format!("{}, {}", line.reference, line.against),
    ]
}

fn met(met: Option<bool>) -> String {
    match met {
        Some(true) => "met",
        Some(false) => "**missed**",
        None => "",
    }
    .to_owned()
}

/// A whole number with its thousands apart.
pub fn grouped(value: f64) -> String {
    let digits = format!("{value:.0}");
    let (sign, digits) = match digits.strip_prefix('-') {
        Some(digits) => ("-", digits),
        None => ("", digits.as_str()),
    };
    let mut text = sign.to_owned();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::measure::Pairs;
    use super::super::report::Targets;
    use super::*;
    use std::time::Duration;

    #[test]
    fn thousands_stand_apart() {
        for (value, text) in [
            (0.0, "0"),
            (999.4, "999"),
            (1_000.0, "1,000"),
            (1_234_567.0, "1,234,567"),
            (-1_500.0, "-1,500"),
        ] {
            assert_eq!(grouped(value), text);
        }
    }

    #[test]
    fn ratios_come_first_and_a_miss_is_said() {
        let mut pairs = Pairs::default();
        pairs.push(90_000.0, 100_000.0);
        let lines = [
            Line::Distribution(Distribution::new(
                "latency",
                "of it",
                vec![Duration::from_millis(2)],
                Targets {
                    p50_ms: None,
                    p99_ms: Some(5.0),
                },
            )),
            Line::Comparison(Comparison::new(
                ("resting", "5 x 2".to_owned()),
                "a | b",
                pairs,
                Some(0.95),
            )),
        ];
        let text = markdown(&lines);
        let rows: Vec<&str> = text.lines().skip(2).collect();
        assert_eq!(
            rows,
            [
                "| 0.90 | ≥ 0.95 | **missed** | resting 5 x 2 | 90,000 events/s | 100,000, a \\| b |",
                "| p50 2.00 ms, p99 2.00 ms | p99 < 5 ms | met | latency of it | p95 2.00 ms, at most 2.00 ms, 1 samples |  |",
            ]
        );
    }
}
