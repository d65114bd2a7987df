//! Times and numbers as people read them. Instants are in UTC; how long ago they were stands beside them.

use jiff::Timestamp;
use maud::{Markup, html};

/// A span of time: `340 ms`, `12 s`, `4 min`, `3 h`, `5 d`.
pub(crate) fn span(seconds: f64) -> String {
    match seconds.max(0.0) {
        s if s < 0.0005 => "0 s".to_owned(),
        s if s < 0.95 => format!("{:.0} ms", (s * 1e3).max(1.0)),
        s if s < 119.5 => format!("{s:.0} s"),
        s if s < 7_170.0 => format!("{:.0} min", s / 60.0),
        s if s < 171_000.0 => format!("{:.0} h", s / 3_600.0),
        s => format!("{:.0} d", s / 86_400.0),
    }
}

/// Seconds since an instant, below 0 for one that comes.
pub(crate) fn since_s(at: Timestamp) -> f64 {
    Timestamp::now().duration_since(at).as_secs_f64()
}

/// How long ago, or in how long, with the instant itself behind it.
pub(crate) fn when(at: Timestamp) -> Markup {
    let seconds = since_s(at);
    let text = match seconds < -0.5 {
        true => format!("in {}", span(-seconds)),
        false => format!("{} ago", span(seconds)),
    };
    html! { time datetime=(at) title=(full(at)) { (text) } }
}

/// The time of the day, with the whole instant behind it.
pub(crate) fn at(at: Timestamp) -> Markup {
    html! { time datetime=(at) title=(full(at)) { (clock(at)) } }
}

pub(crate) fn clock(at: Timestamp) -> String {
    at.strftime("%H:%M:%S").to_string()
}

pub(crate) fn full(at: Timestamp) -> String {
    at.strftime("%Y-%m-%d %H:%M:%S UTC").to_string()
}

pub(crate) fn day(at: Timestamp) -> String {
    at.strftime("%A, %-d %B %Y").to_string()
}

/// With thin spaces between thousands, and a `+` where it is a lower bound.
pub(crate) fn count(number: i64, is_bound: bool) -> String {
    let digits = number.unsigned_abs().to_string();
    let mut text = String::with_capacity(digits.len() * 2);
    if number < 0 {
        text.push('−');
    }
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push('\u{202f}');
        }
        text.push(digit);
    }
    if is_bound {
        text.push('+');
    }
    text
}

/// `1 event`, `3 events`.
pub(crate) fn plural(number: i64, one: &str, many: &str) -> String {
    format!(
        "{} {}",
        count(number, false),
        if number == 1 { one } else { many }
    )
}

pub(crate) fn rate(per_second: f64) -> String {
    match per_second {
        0.0 => "0/s".to_owned(),
        r if r < 10.0 => format!("{r:.1}/s"),
        r => format!("{}/s", count(r.round() as i64, false)),
    }
}

pub(crate) fn bytes(bytes: i32) -> String {
    match f64::from(bytes) {
        b if b < 1024.0 => format!("{b:.0} B"),
        b if b < 1_048_576.0 => format!("{:.1} KiB", b / 1024.0),
        b => format!("{:.1} MiB", b / 1_048_576.0),
    }
}

/// At most so many characters, marked where there are more; control characters as they are written in Rust.
pub(crate) fn short(text: &str, most: usize) -> String {
    let cut = text.char_indices().nth(most).map(|(at, _)| at);
    let kept = plain(&text[..cut.unwrap_or(text.len())]);
    if cut.is_some() { kept + "…" } else { kept }
}

/// Whether a browser would not show it, or would turn the line around with it.
pub(crate) fn is_hidden(char: char) -> bool {
    char.is_control()
        || matches!(char, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{200b}'..='\u{200f}')
}

/// Without characters that a browser would not show, or would turn the line around with.
pub(crate) fn plain(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    for char in text.chars() {
        match is_hidden(char) && char != '\n' && char != '\t' {
            true => plain.extend(char.escape_unicode()),
            false => plain.push(char),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_and_numbers_are_said_as_people_say_them() {
        let said = [0.0, 0.2, 45.4, 200.0, 7_300.0, 500_000.0].map(span);
        assert_eq!(said, ["0 s", "200 ms", "45 s", "3 min", "2 h", "6 d"]);
        assert_eq!(count(1_234_567, true), "1\u{202f}234\u{202f}567+");
        assert_eq!(
            (count(12, false), count(-1_000, false)),
            ("12".to_owned(), "−1\u{202f}000".to_owned())
        );
        assert_eq!(
            [0.0, 0.25, 3.21, 1_200.4].map(rate),
            ["0/s", "0.2/s", "3.2/s", "1\u{202f}200/s"]
        );
        assert_eq!(
            [10, 2_048, 8 << 20].map(bytes),
            ["10 B", "2.0 KiB", "8.0 MiB"]
        );
    }

    #[test]
    fn text_that_would_hide_or_turn_something_is_written_out() {
        assert_eq!(plain("a\u{202e}b\u{0}c\n"), "a\\u{202e}b\\u{0}c\n");
        assert_eq!(short("überlang", 4), "über…");
        assert_eq!(short("kurz", 4), "kurz");
    }
}
