//! The names of docs/observability.md and of the semantic conventions.

use std::collections::BTreeSet;

use lanekeeper_telemetry::names::{self, key};
use opentelemetry_semantic_conventions::{attribute, metric};

use crate::document::{repository, rows, section};

#[test]
fn names_that_the_semantic_conventions_know_are_theirs() {
    let theirs = [
        (names::PROCESS_DURATION, metric::MESSAGING_PROCESS_DURATION),
        (names::HTTP_DURATION, metric::HTTP_SERVER_REQUEST_DURATION),
        (names::HTTP_ACTIVE, metric::HTTP_SERVER_ACTIVE_REQUESTS),
    ];
    for (ours, theirs) in theirs {
        assert_eq!(ours.name, theirs);
    }
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
        (key::HTTP_METHOD, attribute::HTTP_REQUEST_METHOD),
        (key::HTTP_ROUTE, attribute::HTTP_ROUTE),
        (key::HTTP_STATUS, attribute::HTTP_RESPONSE_STATUS_CODE),
        (key::URL_SCHEME, attribute::URL_SCHEME),
    ] {
        assert_eq!(ours, theirs);
    }
    for instrument in names::INSTRUMENTS {
        let own = instrument.name.starts_with("lanekeeper.");
        assert!(
            own || theirs.iter().any(|(ours, _)| ours == instrument),
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
