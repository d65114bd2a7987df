//! An operation of the API: one method of one path, as the document describes it.
//!
//! A handler is added to the routes together with its operation, most of them in a line or two:
//!
//! ```text
//! .on(get("/v1/lanes", "list_lanes", "List lanes").scope(Scope::Read).query::<Which>().answers::<Page>(200, "A page"), list)
//! ```
//!
//! What every operation with a token may be refused for is added by itself; [`Operation::problems`] names the rest.

use axum::http::Method;
use lanekeeper_postgres::token::Scope;
use schemars::{JsonSchema, Schema, SchemaGenerator};

use crate::problem_type::{self as of, ProblemType};

/// Makes the schema of a type.
pub type SchemaOf = fn(&mut SchemaGenerator) -> Schema;

pub(crate) const JSON: &str = "application/json";

/// See the module.
#[derive(Clone)]
pub struct Operation {
    pub(crate) method: Method,
    pub(crate) path: &'static str,
    /// Unique in the document; generated clients name their functions so.
    pub(super) id: &'static str,
    pub(super) summary: &'static str,
    pub(super) details: &'static str,
    /// A token needs all of them. Empty: the operation needs no token.
    pub(super) scopes: &'static [Scope],
    pub(super) takes_link: bool,
    /// What a request shows in place of a token, as a sentence.
    pub(super) proof: Option<&'static str>,
    pub(super) query: Option<SchemaOf>,
    pub(super) headers: Vec<Header>,
    pub(super) body: Option<Body>,
    pub(super) answers: Vec<Answer>,
    pub(super) problems: Vec<ProblemType>,
}

/// A header that a request may have, or an answer has.
#[derive(Clone, Copy)]
pub(super) struct Header {
    pub(super) name: &'static str,
    pub(super) says: &'static str,
}

/// What a request carries.
#[derive(Clone)]
pub(super) struct Body {
    pub(super) required: bool,
    /// One of them.
    pub(super) forms: Vec<Form>,
}

/// A body of one media type.
#[derive(Clone)]
pub(super) struct Form {
    pub(super) kind: &'static str,
    /// One of them.
    pub(super) shapes: Vec<SchemaOf>,
}

/// An answer that is no problem.
#[derive(Clone)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) says: &'static str,
    /// Of its body; `None`: it has none.
    pub(super) kind: Option<&'static str>,
    /// One of them.
    pub(super) shapes: Vec<SchemaOf>,
    pub(super) headers: Vec<Header>,
}

fn shape<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    generator.subschema_for::<T>()
}

/// Not as a component: its members become parameters.
fn members<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    T::json_schema(generator)
}

macro_rules! methods {
    ($($name:ident = $method:ident;)*) => {$(
        pub fn $name(path: &'static str, id: &'static str, summary: &'static str) -> Operation {
            Operation::new(Method::$method, path, id, summary)
        }
    )*};
}

methods! {
    delete = DELETE;
    get = GET;
    options = OPTIONS;
    patch = PATCH;
    post = POST;
    put = PUT;
}

impl Operation {
    fn new(method: Method, path: &'static str, id: &'static str, summary: &'static str) -> Self {
        Self {
            method,
            path,
            id,
            summary,
            details: "",
            scopes: &[],
            takes_link: false,
            proof: None,
            query: None,
            headers: Vec::new(),
            body: None,
            answers: Vec::new(),
            problems: Vec::new(),
        }
    }

    /// What the summary leaves out.
    #[must_use]
    pub fn details(mut self, details: &'static str) -> Self {
        self.details = details;
        self
    }

    #[must_use]
    pub fn scopes(mut self, scopes: &'static [Scope]) -> Self {
        self.scopes = scopes;
        self
    }

    /// A signed link does instead of a token.
    #[must_use]
    pub fn or_link(mut self) -> Self {
        self.takes_link = true;
        self
    }

    /// No access token counts: `says` is what the request shows in its place, as a sentence.
    #[must_use]
    pub fn proof(mut self, says: &'static str) -> Self {
        self.proof = Some(says);
        self
    }

    /// The members of `T` are its parameters.
    #[must_use]
    pub fn query<T: JsonSchema>(mut self) -> Self {
        self.query = Some(members::<T>);
        self
    }

    /// A header that a request may have.
    #[must_use]
    pub fn header(mut self, name: &'static str, says: &'static str) -> Self {
        self.headers.push(Header { name, says });
        self
    }

    /// The request carries a `T` as JSON. Given twice, it is one of the two.
    #[must_use]
    pub fn body<T: JsonSchema>(self) -> Self {
        self.body_of::<T>(JSON, true)
    }

    /// The same, or nothing.
    #[must_use]
    pub fn optional_body<T: JsonSchema>(self) -> Self {
        self.body_of::<T>(JSON, false)
    }

    /// The same, as another media type. Each that is given is taken.
    #[must_use]
    pub fn body_of<T: JsonSchema>(mut self, kind: &'static str, required: bool) -> Self {
        let body = self.body.get_or_insert(Body {
            required,
            forms: Vec::new(),
        });
        match body.forms.iter_mut().find(|form| form.kind == kind) {
            Some(form) => form.shapes.push(shape::<T>),
            None => body.forms.push(Form {
                kind,
                shapes: vec![shape::<T>],
            }),
        }
        self
    }

    /// It answers with a `T` as JSON. Given twice for a status, the answer is one of the two.
    #[must_use]
    pub fn answers<T: JsonSchema>(self, status: u16, says: &'static str) -> Self {
        self.answers_as::<T>(status, says, JSON)
    }

    /// The same, as another media type.
    #[must_use]
    pub fn answers_as<T: JsonSchema>(
        mut self,
        status: u16,
        says: &'static str,
        kind: &'static str,
    ) -> Self {
        let known = self.answers.iter_mut().find(|known| known.status == status);
        match known {
            Some(known) => known.shapes.push(shape::<T>),
            None => self.answers.push(Answer {
                status,
                says,
                kind: Some(kind),
                shapes: vec![shape::<T>],
                headers: Vec::new(),
            }),
        }
        self
    }

    /// It answers without a body.
    #[must_use]
    pub fn answers_empty(mut self, status: u16, says: &'static str) -> Self {
        self.answers.push(Answer {
            status,
            says,
            kind: None,
            shapes: Vec::new(),
            headers: Vec::new(),
        });
        self
    }

    /// A header of the answer that was given last.
    #[must_use]
    pub fn with_header(mut self, name: &'static str, says: &'static str) -> Self {
        if let Some(answer) = self.answers.last_mut() {
            answer.headers.push(Header { name, says });
        }
        self
    }

    /// Problems that are its own.
    #[must_use]
    pub fn problems(mut self, problems: &[ProblemType]) -> Self {
        self.problems.extend(problems);
        self
    }

    /// The names of the parameters in its path.
    pub(super) fn path_parameters(&self) -> impl Iterator<Item = &'static str> {
        let pieces = self.path.split('{').skip(1);
        pieces.filter_map(|piece| Some(piece.split_once('}')?.0))
    }

    /// All problems that it may answer with.
    pub(super) fn all_problems(&self) -> Vec<ProblemType> {
        let mut all = self.problems.clone();
        let mut add = |more: &[ProblemType]| {
            for one in more {
                if !all.contains(one) {
                    all.push(*one);
                }
            }
        };
        if self.path_parameters().next().is_some() {
            // Among others, for a parameter that is empty.
            add(&[of::NOT_FOUND]);
        }
        if !self.scopes.is_empty() {
            add(&[of::FORBIDDEN, of::RATE_LIMITED]);
        }
        if !self.scopes.is_empty() || self.proof.is_some() {
            add(&[
                of::UNAUTHORIZED,
                of::INVALID,
                of::BUSY,
                of::FAILED,
                of::UNAVAILABLE,
            ]);
            if self.method != Method::GET {
                add(&[of::SESSION_BUSY, of::OUTCOME_UNKNOWN]);
            }
        }
        if self.body.is_some() {
            add(&[of::INCOMPLETE, of::TIMED_OUT, of::PAYLOAD_TOO_LARGE]);
        }
        all
    }
}
