//! The frame of every page.

use axum::http::HeaderMap;
use axum::response::{Html, IntoResponse as _, Response};
use jiff::Timestamp;
use maud::{DOCTYPE, Markup, html};

use crate::assets::VERSION;
use crate::config::DashboardMode;
use crate::forgery;
use crate::notice::{self, Notice};
use crate::state::Dashboard;
use crate::visitor::Visitor;

/// The places of the navigation: path, name, key behind `g`.
const PLACES: [(&str, &str, &str); 6] = [
    ("/", "Overview", "o"),
    ("/lanes", "Lanes", "l"),
    ("/sessions", "Sessions", "s"),
    ("/agents", "Agents", "a"),
    ("/dead", "Dead letters", "d"),
    ("/workers", "Workers", "w"),
];

/// A page of somebody who may read.
pub(crate) struct Page<'a> {
    pub(crate) title: &'a str,
    /// The place of the navigation that it belongs to.
    pub(crate) place: &'a str,
    /// Seconds after which its parts are renewed.
    pub(crate) renew_s: Option<u32>,
}

impl Page<'_> {
    pub(crate) fn answer(
        &self,
        dashboard: &Dashboard,
        visitor: &Visitor,
        headers: &HeaderMap,
        main: &Markup,
    ) -> Response {
        let notice = Notice::of(visitor, headers);
        let body = html! {
            header.top {
                a.brand href="/" { (mark()) span { "Lanekeeper" } }
                nav aria-label="Pages" {
                    @for (path, name, key) in PLACES {
                        a href=(path) data-key=(key) aria-current=[(path == self.place).then_some("page")] { (name) }
                    }
                }
                form.search action="/find" role="search" {
                    label.hidden for="q" { "Session or message id" }
                    input #q name="q" type="search" placeholder="Session or message id" autocomplete="off" spellcheck="false" maxlength="512";
                }
                (who(dashboard, visitor))
            }
            main data-renew=[self.renew_s] {
                div #away hidden role="status" {}
                @if let Some(notice) = &notice {
                    div.notice.bad[!notice.done] role="status" { (notice.text) }
                }
                (main)
            }
            footer.foot {
                span #asked { "As of " (crate::part::format::clock(Timestamp::now())) " UTC" }
                span.keys { kbd { "/" } " search  " kbd { "g" } " then " kbd { "o l s a d w" } " pages" }
            }
        };
        let mut response = Html(document(self.title, None, &body).into_string()).into_response();
        if notice.is_some() {
            notice::forget(&mut response);
        }
        response
    }
}

fn who(dashboard: &Dashboard, visitor: &Visitor) -> Markup {
    let may = match (visitor.may_operate(), dashboard.config.mode) {
        (true, _) => "may operate",
        (false, DashboardMode::ReadOnly) => "read-only dashboard",
        (false, _) => "may read",
    };
    html! {
        div.who {
            @match visitor.name() {
                Some(name) => {
                    span title=(may) { (name) }
                    form method="post" action="/sign-out" {
                        input type="hidden" name=(forgery::FIELD) value=(forgery::token(&visitor.key));
                        button.plain type="submit" { "Sign out" }
                    }
                }
                None => span title="http.allow_unauthenticated is on, and there is no access token" { "This machine" }
            }
        }
    }
}

/// A page of nobody: a sign-in, or trouble. `again_s`: it asks once more after so many seconds.
pub(crate) fn bare(title: &str, again_s: Option<u32>, main: Markup) -> Markup {
    let body = html! {
        header.top.alone { a.brand href="/" { (mark()) span { "Lanekeeper" } } }
        main.narrow data-trouble { (main) }
    };
    let again = again_s.map(|seconds| seconds.to_string());
    document(title, again.as_deref(), &body)
}

/// `again`: after which time the browser goes where, as `<meta http-equiv="refresh">` writes it.
pub(crate) fn document(title: &str, again: Option<&str>, body: &Markup) -> Markup {
    let version = VERSION.as_str();
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                meta name="robots" content="noindex";
                @if let Some(again) = again { meta http-equiv="refresh" content=(again); }
                title { (title) " · Lanekeeper" }
                link rel="icon" type="image/svg+xml" href={ "/assets/icon.svg?v=" (version) };
                link rel="stylesheet" href={ "/assets/dashboard.css?v=" (version) };
                script src={ "/assets/dashboard.js?v=" (version) } defer {}
            }
            body {
                a.skip href="#main" { "Skip to the content" }
                div #main { (body) }
            }
        }
    }
}

/// Three lanes, one of which is held up.
fn mark() -> Markup {
    html! {
        svg.mark viewBox="0 0 20 20" width="20" height="20" aria-hidden="true" {
            path d="M2 4.5h16M2 10h7M2 15.5h16" {}
            circle cx="13" cy="10" r="2.25" {}
        }
    }
}
