//! The schema's version, and which programs may use it.

use tokio_postgres::GenericClient;

use super::StoreError;

/// What a database says of its schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Version {
    pub number: i32,
    /// Workers whose own version is this one or a later one may use it.
    pub oldest_worker: i32,
}

/// Why a program must not use a schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unfit {
    /// The program needs a later version: it must be migrated first.
    TooOld { found: i32 },
    /// A later release migrated it and no longer keeps what this program uses.
    TooNew { found: Version },
}

impl Version {
    /// Whether a program of version `own` may use this schema.
    ///
    /// # Errors
    /// Why it may not.
    pub fn admits(self, own: i32) -> Result<(), Unfit> {
        if self.number < own {
            Err(Unfit::TooOld { found: self.number })
        } else if self.oldest_worker > own {
            Err(Unfit::TooNew { found: self })
        } else {
            Ok(())
        }
    }
}

/// The schema's version; `None` where nothing was ever migrated. Statements are unnamed: producers
/// ask through transaction poolers.
///
/// # Errors
/// Where the catalogue cannot be read.
pub async fn version(client: &impl GenericClient) -> Result<Option<Version>, StoreError> {
    let operation = "reading the schema's version";
    let present: bool = client
        .query_typed_one(
            "SELECT to_regclass('lanekeeper.schema_version') IS NOT NULL",
            &[],
        )
        .await
        .map_err(StoreError::on(operation))?
        .get(0);
    if !present {
        return Ok(None);
    }
    let row = client
        .query_typed_opt(
            "SELECT version, oldest_worker FROM lanekeeper.schema_version ORDER BY version DESC LIMIT 1",
            &[],
        )
        .await
        .map_err(StoreError::on(operation))?;
    Ok(row.map(|row| Version {
        number: row.get(0),
        oldest_worker: row.get(1),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schema_admits_programs_of_its_version_and_back_to_the_oldest_worker() {
        let found = Version {
            number: 7,
            oldest_worker: 5,
        };
        assert_eq!(found.admits(8), Err(Unfit::TooOld { found: 7 }));
        for own in 5..=7 {
            assert_eq!(found.admits(own), Ok(()));
        }
        assert_eq!(found.admits(4), Err(Unfit::TooNew { found }));
    }
}
