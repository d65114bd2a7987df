//! The results as lines for people.

use std::fmt;

use super::cost::Cost;
use super::report::{Comparison, Costs, Distribution, Line, Size, Trend, Window};

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Environment(environment) => environment.fmt(f),
            Self::Comparison(line) => line.fmt(f),
            Self::Distribution(line) => line.fmt(f),
            Self::Size(line) => line.fmt(f),
            Self::Costs(line) => line.fmt(f),
            Self::Trend(line) => line.fmt(f),
        }
    }
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let target = self
            .target
            .map(|target| format!("(≥ {target:.2}{})", missed(self.met)));
        write!(
            f,
            "{:6.2} x {:18} {} {}: {:.0} {} against {:.0}, {}",
            self.ratio,
            target.unwrap_or_default(),
            self.bench,
            self.case,
            self.value,
            self.unit,
            self.reference,
            self.against,
        )
    }
}

impl fmt::Display for Distribution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let targets: Vec<String> = [("p50", self.target_p50_ms), ("p99", self.target_p99_ms)]
            .iter()
            .filter_map(|(name, target)| Some(format!("{name} < {} ms", (*target)?)))
            .collect();
        let target =
            (!targets.is_empty()).then(|| format!("({}{})", targets.join(", "), missed(self.met)));
        write!(
            f,
            "p50 {:.2}, p95 {:.2}, p99 {:.2}, max {:.2} ms {} {} {}: {} samples",
            self.p50_ms,
            self.p95_ms,
            self.p99_ms,
            self.max_ms,
            target.unwrap_or_default(),
            self.bench,
            self.case,
            self.samples,
        )
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:.1} MiB (< {:.0} MiB{}) {} {}",
            self.mib,
            self.target_mib,
            missed(Some(self.met)),
            self.bench,
            self.case,
        )
    }
}

impl fmt::Display for Costs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "each event of {} {}: {} against {}, {}",
            self.bench, self.case, self.value, self.reference, self.against,
        )
    }
}

impl fmt::Display for Trend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:6.2} x (≤ {:.2}{}) {} {}: p99 of the last window over the first, {:.0} % of {:.0} events/s kept; \
             {:.2} x {}",
            self.ratio,
            self.target,
            missed(Some(self.met)),
            self.bench,
            self.case,
            self.rate_kept * 100.0,
            self.asked_per_second,
            self.reference_ratio,
            self.against,
        )?;
        let windows = |f: &mut fmt::Formatter<'_>, windows: &[Window]| {
            windows
                .iter()
                .try_for_each(|window| write!(f, "\n  {window}"))
        };
        write!(f, "with:")?;
        windows(f, &self.windows)?;
        write!(f, "\nwithout:")?;
        windows(f, &self.reference_windows)
    }
}

impl fmt::Display for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:4.0} s: {:.0} events/s, p50 {:.2}, p99 {:.2}, max {:.1} ms; from the call {:.2}, {:.2} ms",
            self.to_s,
            self.delivered_per_second,
            self.p50_ms,
            self.p99_ms,
            self.max_ms,
            self.call_p50_ms,
            self.call_p99_ms,
        )?;
        if let Some(cost) = &self.cost {
            write!(f, "; {cost}")?;
        }
        for (name, table) in &self.tables {
            write!(f, "; {name} {} dead, {:.0} MiB", table.dead_rows, table.mib)?;
        }
        Ok(())
    }
}

impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some((server, client)) = self.server_cpu_us.zip(self.client_cpu_us) {
            write!(f, "{server:.1} + {client:.1} µs of CPU (server + client), ")?;
        }
        write!(f, "{:.0} bytes of WAL", self.wal_bytes)
    }
}

fn missed(met: Option<bool>) -> &'static str {
    if met == Some(false) { ", MISSED" } else { "" }
}
