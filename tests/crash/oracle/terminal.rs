//! What was seen while a run goes must still be there later.

use std::collections::BTreeMap;

use super::{Lane, LaneName};

/// Sees that what is settled stays settled.
#[derive(Default)]
pub struct Terminal {
    seen: BTreeMap<LaneName, Lane>,
}

impl Terminal {
    /// A crash of the server may take back the settlements of its last moments, which are not flushed:
    /// what was seen before it does not count after it.
    pub fn forget(&mut self) {
        self.seen.clear();
    }

    /// What went back since the last look.
    pub fn look(&mut self, lanes: BTreeMap<LaneName, Lane>) -> Vec<String> {
        let mut found = Vec::new();
        for (name, before) in &self.seen {
            let Some(now) = lanes.get(name) else {
                found.push(format!("{name:?} is gone"));
                continue;
            };
            if now.cursor < before.cursor {
                let (was, is) = (before.cursor, now.cursor);
                found.push(format!("{name:?}: the cursor went back from {was} to {is}"));
            }
            for (seq, kind) in &before.outcomes {
                let is = now.outcomes.get(seq);
                let letter = now.letters.get(seq);
                // A dead letter that was requeued and accepted counts as delivered.
                let redelivered = kind == "dead_lettered"
                    && is.is_none()
                    && letter.is_some_and(|it| it.is_redelivered);
                if is != Some(kind) && !redelivered {
                    found.push(format!("{name:?} {seq}: {kind} became {is:?}"));
                }
            }
            for (seq, letter) in &before.letters {
                let is = now.letters.get(seq);
                if is.is_none_or(|it| letter.is_redelivered && !it.is_redelivered) {
                    found.push(format!("{name:?} {seq}: {letter:?} became {is:?}"));
                }
            }
        }
        self.seen = lanes;
        found
    }
}
