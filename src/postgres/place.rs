//! Where a row of `ready` or `progress` lies: a `tid`. Tokens are never changed, so that a token stays at its place
//! until it is deleted; its id tells whether the place is somebody else's by now. Progress moves with each settlement.

use std::error::Error;

use bytes::BytesMut;
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, accepts, to_sql_checked};

/// A block number of four bytes and an offset of two, as the server writes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place([u8; 6]);

impl<'a> FromSql<'a> for Place {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn Error + Sync + Send>> {
        Ok(Self(raw.try_into()?))
    }

    accepts!(TID);
}

impl ToSql for Place {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        out.extend_from_slice(&self.0);
        Ok(IsNull::No)
    }

    accepts!(TID);
    to_sql_checked!();
}
