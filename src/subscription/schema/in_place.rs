//! Which schemas judge one value at once: those that `$ref`, `allOf`, `anyOf`, `oneOf`, `not`, `if`, `then` and `else` lead
//! to. A circle of them would never come to a part of the value, and a few of them can multiply: both are refused.

use std::collections::BTreeMap;

use super::rules::SchemaProblem;

/// Schemas that may be asked of one value.
const MOST: u64 = 1_000;

#[derive(Default)]
pub(super) struct InPlace {
    edges: BTreeMap<String, Vec<String>>,
}

enum State {
    UnderWay,
    Counted(u64),
}

impl InPlace {
    /// The schema at `from` asks the one at `to` of the same value.
    pub(super) fn edge(&mut self, from: &str, to: &str) {
        let edges = self.edges.entry(from.to_owned()).or_default();
        edges.push(to.to_owned());
    }

    pub(super) fn judge(&self) -> Result<(), SchemaProblem> {
        let mut states = BTreeMap::new();
        for from in self.edges.keys() {
            self.count(from, &mut states)?;
        }
        Ok(())
    }

    /// How many schemas are asked of a value that the one at `at` is asked of. Recurses as deep as there are schemas,
    /// whose number is bounded.
    fn count<'a>(
        &'a self,
        at: &'a str,
        states: &mut BTreeMap<&'a str, State>,
    ) -> Result<u64, SchemaProblem> {
        let wrong = |reason: String| SchemaProblem {
            at: at.to_owned(),
            reason,
        };
        match states.get(at) {
            Some(State::UnderWay) => {
                return Err(wrong(
                    "leads back to itself, and to no part of the value on the way".to_owned(),
                ));
            }
            Some(State::Counted(count)) => return Ok(*count),
            None => {}
        }
        states.insert(at, State::UnderWay);
        let mut count: u64 = 1;
        for to in self.edges.get(at).into_iter().flatten() {
            count = count.saturating_add(self.count(to, states)?);
        }
        if count > MOST {
            return Err(wrong(format!(
                "asks more than {MOST} schemas of one value, through its references"
            )));
        }
        states.insert(at, State::Counted(count));
        Ok(count)
    }
}
