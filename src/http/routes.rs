//! Routes of the API, each added together with the operation that the OpenAPI document has of it.
//!
//! The operation names method and path, so router and document cannot differ. `tests/it/api/openapi.rs` looks for
//! routes that are made in another way, and names them.

use axum::Router;
use axum::handler::Handler;
use axum::routing::{MethodFilter, on};

use super::openapi::operation::Operation;

/// What handlers share; each takes its part.
pub trait Shared: Clone + Send + Sync + 'static {}

impl<S: Clone + Send + Sync + 'static> Shared for S {}

/// Routes, and the operations at them.
pub struct Routes<S> {
    pub(super) router: Router<S>,
    pub(super) operations: Vec<Operation>,
}

impl<S: Shared> Routes<S> {
    pub fn new() -> Self {
        Self {
            router: Router::new(),
            operations: Vec::new(),
        }
    }

    /// Adds an operation and what carries it out.
    #[must_use]
    pub fn on<H, T>(mut self, operation: Operation, handler: H) -> Self
    where
        H: Handler<T, S>,
        T: 'static,
    {
        let method = MethodFilter::try_from(operation.method.clone());
        let method = method.expect("operations are made of the methods that axum knows");
        self.router = self.router.route(operation.path, on(method, handler));
        self.operations.push(operation);
        self
    }

    #[must_use]
    pub fn merge(mut self, other: Self) -> Self {
        self.router = self.router.merge(other.router);
        self.operations.extend(other.operations);
        self
    }
}
