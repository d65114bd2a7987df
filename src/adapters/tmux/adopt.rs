//! The command that brings an agent without a terminal into one: a list of arguments, into which what is known of its
//! session is put. No shell reads it.

use lanekeeper_core::terminal::Known;

/// What may stand in an argument, in braces.
const PLACES: [&str; 3] = ["session", "native_session_id", "cwd"];

/// Why a template is none.
pub fn problem(template: &[String]) -> Option<String> {
    let program = template.first().map_or("", String::as_str);
    if program.is_empty() || program.contains(['{', '=']) || program.starts_with('-') {
        return Some("it must name a program, then its arguments".to_owned());
    }
    let unknown = template.iter().find_map(|argument| {
        let names = argument
            .split('{')
            .skip(1)
            .filter_map(|rest| rest.split_once('}'));
        names
            .map(|(name, _)| name)
            .find(|name| !PLACES.contains(name))
    });
    unknown.map(|name| {
        let known = PLACES.map(|name| format!("{{{name}}}")).join(", ");
        format!("there is no {{{name}}}; known: {known}")
    })
}

/// The command for a session.
///
/// # Errors
/// What is not known, or may not stand in an argument: the agent's hooks said it, and it must not become an option.
pub fn command(template: &[String], session: &str, known: &Known) -> Result<Vec<String>, String> {
    let fill = |argument: &String| {
        let mut filled = argument.clone();
        let values = [
            ("session", Some(session)),
            ("native_session_id", known.native_session_id.as_deref()),
            ("cwd", known.cwd.as_deref()),
        ];
        for (name, value) in values {
            let place = format!("{{{name}}}");
            if !filled.contains(&place) {
                continue;
            }
            let value = value.ok_or_else(|| format!("the agent registry has no {name}"))?;
            if value.starts_with('-') || value.contains(|c: char| c.is_control() || c == '{') {
                return Err(format!(
                    "the {name} of this session cannot stand in a command"
                ));
            }
            filled = filled.replace(&place, value);
        }
        Ok(filled)
    };
    template.iter().map(fill).collect()
}

/// What tmux calls the session that is started: its own words for targets have no place in it.
pub fn tmux_session(session: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
    let name: String = session.chars().take(48).map(plain).collect();
    format!("lk-{name}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(words: &[&str]) -> Vec<String> {
        words.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_template_names_a_program_and_only_places_that_there_are() {
        assert_eq!(
            problem(&words(&["claude", "--resume", "{native_session_id}"])),
            None
        );
        for bad in [&[][..], &[""], &["{session}"], &["A=b", "c"], &["-c"]] {
            assert!(
                problem(&words(bad)).unwrap().contains("name a program"),
                "{bad:?}"
            );
        }
        assert!(
            problem(&words(&["a", "{home}"]))
                .unwrap()
                .contains("{home}")
        );
    }

    #[test]
    fn what_hooks_said_is_one_argument_and_never_an_option() {
        let template = words(&["claude", "--resume", "{native_session_id}", "-d{cwd}"]);
        let known = |id: &str| Known {
            native_session_id: Some(id.to_owned()),
            cwd: Some("/w x; rm".to_owned()),
            ..Known::default()
        };
        let expected = words(&["claude", "--resume", "7f3a", "-d/w x; rm"]);
        assert_eq!(command(&template, "s", &known("7f3a")), Ok(expected));
        for bad in ["--dangerously", "a\nb", "{cwd}"] {
            assert!(command(&template, "s", &known(bad)).is_err(), "{bad}");
        }
        let unknown = command(&template, "s", &Known::default()).unwrap_err();
        assert!(unknown.contains("no native_session_id"), "{unknown}");
        assert_eq!(tmux_session("a:b.c=d"), "lk-a-b-c-d");
    }
}
