//! The names of docs/observability.md and of the semantic conventions.

use std::collections::BTreeSet;

use lanekeeper::telemetry::names::{self, key};
use opentelemetry_semantic_conventions::{attribute, metric};

use crate::document::{repository, rows, section};

#[test]
fn names_that_the_semantic_conventions_know_are_theirs() {
    assert_eq!(
        names::PROCESS_DURATION.name,
        metric::MESSAGING_PROCESS_DURATION
    );
    for (ours, theirs) in [
        (key::MESSAGING_SYSTEM, attribute::MESSAGING_SYSTEM),
        (key::OPERATION_NAME, attribute::MESSAGING_OPERATION_NAME),
        (key::OPERATION_TYPE, attribute::MESSAGING_OPERATION_TYPE),
        (key::DESTINATION, attribute::MESSAGING_DESTINATION_NAME),
        (
            key::CONSUMER_GROUP,
            attribute::MESSAGING_CONSUMER_GROUP_NAME,
        ),
        (key::MESSAGE_ID, attribute::MESSAGING_MESSAGE_ID),
        (
            key::CONVERSATION_ID,
            attribute::MESSAGING_MESSAGE_CONVERSATION_ID,
        ),
        (key::ERROR_TYPE, attribute::ERROR_TYPE),
    ] {
        assert_eq!(ours, theirs);
    }
    for instrument in names::INSTRUMENTS {
        let own = instrument.name.starts_with("lanekeeper.");
        assert!(
            own || *instrument == names::PROCESS_DURATION,
            "{instrument:?}"
        );
    }
}

#[test]
fn the_documentation_lists_every_instrument_with_its_unit() {
    let text = std::fs::read_to_string(repository("docs/observability.md")).unwrap();
    let listed: BTreeSet<_> = rows(section(&text, "Metrics"))
        .iter()
        .map(|row| {
            (
                row[0].trim_matches('`').to_owned(),
                row[1].trim_matches('`').to_owned(),
            )
        })
        .collect();
    let known: BTreeSet<_> = names::INSTRUMENTS
        .iter()
        .map(|known| (known.name.to_owned(), known.unit.to_owned()))
        .collect();
    assert_eq!(listed, known);
}
