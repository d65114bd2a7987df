//! Commands in what people write, such as `/stop`: words that act on the session beside being, or instead of being, a
//! message to the agent.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

const MOST: usize = 20;
const LONGEST: usize = 64;

/// What a command does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// The message is the next one of its session: what waits is superseded, and what is being delivered is cancelled.
    Interrupt,
    /// As `Interrupt`, but what is being delivered ends by itself.
    Barrier,
    /// The chat is told how its session is. Nothing is enqueued.
    Status,
}

impl Action {
    pub const ALL: [Self; 3] = [Self::Interrupt, Self::Barrier, Self::Status];

    /// Its word in the file and in the database.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Interrupt => "interrupt",
            Self::Barrier => "barrier",
            Self::Status => "status",
        }
    }
}

/// The commands of a source: what a message begins with, and what that does.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Commands(BTreeMap<String, Action>);

impl Commands {
    /// # Errors
    /// In words, where a command cannot be one.
    pub fn new(given: impl IntoIterator<Item = (String, Action)>) -> Result<Self, String> {
        let commands: BTreeMap<String, Action> = given.into_iter().collect();
        if commands.len() > MOST {
            return Err(format!("must have at most {MOST} commands"));
        }
        let is_word = |word: &String| {
            (1..=LONGEST).contains(&word.len()) && !word.contains(char::is_whitespace)
        };
        match commands.keys().find(|word| !is_word(word)) {
            Some(word) => Err(format!(
                "has the command {word:?}: a command is one word of at most {LONGEST} bytes, such as \"/stop\""
            )),
            None => Ok(Self(commands)),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn has(&self, action: Action) -> bool {
        self.0.values().any(|known| *known == action)
    }

    /// The action of a text whose first word is a command, in whatever case. `bot`: a name that may stand behind it, as
    /// in `/stop@my_bot`; a command with another name is none.
    pub fn find(&self, text: &str, bot: Option<&str>) -> Option<Action> {
        let first = text.split_whitespace().next()?;
        let word = match (first.split_once('@'), bot) {
            (Some((word, name)), Some(bot)) if name.eq_ignore_ascii_case(bot) => word,
            _ => first,
        };
        let mut commands = self.0.iter();
        let found = commands.find(|(command, _)| command.eq_ignore_ascii_case(word));
        found.map(|(_, action)| *action)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_a_command_by_its_first_word_alone() {
        let given = [("/stop", Action::Interrupt), ("/new", Action::Barrier)];
        let commands = Commands::new(given.map(|(word, it)| (word.to_owned(), it))).unwrap();
        for (text, expected) in [
            ("/stop", Some(Action::Interrupt)),
            ("  /Stop at once", Some(Action::Interrupt)),
            ("/new\nstory", Some(Action::Barrier)),
            ("/stop@My_Bot", Some(Action::Interrupt)),
            ("/stop@other_bot", None),
            ("/stopping", None),
            ("please /stop", None),
            ("", None),
        ] {
            assert_eq!(commands.find(text, Some("my_bot")), expected, "{text}");
        }
        assert_eq!(commands.find("/stop@my_bot", None), None);
        assert!(commands.has(Action::Barrier) && !commands.has(Action::Status));
    }

    #[test]
    fn what_is_no_word_is_no_command() {
        for word in ["", "two words", &"x".repeat(65)] {
            let given = [(word.to_owned(), Action::Status)];
            assert!(Commands::new(given).is_err(), "{word}");
        }
        let many = (0..21).map(|i| (format!("/{i}"), Action::Status));
        assert!(Commands::new(many).is_err());
    }
}
