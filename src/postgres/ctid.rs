//! The ctid of a row of `ready` or `progress`: where the row lies in its table.
//!
//! A ready entry is never updated, so it keeps its ctid until it is deleted. Its id shows whether another row has that
//! ctid by now. A row of `progress` gets a new ctid with each settlement.

use std::error::Error;

use bytes::BytesMut;
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, accepts, to_sql_checked};

/// A block number of four bytes and an offset of two, as the server writes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ctid([u8; 6]);

impl<'a> FromSql<'a> for Ctid {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn Error + Sync + Send>> {
        Ok(Self(raw.try_into()?))
    }

    accepts!(TID);
}

impl ToSql for Ctid {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        out.extend_from_slice(&self.0);
        Ok(IsNull::No)
    }

    accepts!(TID);
    to_sql_checked!();
}
