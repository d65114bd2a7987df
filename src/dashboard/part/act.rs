//! Something that an operator can do: a button that opens what it means, the command that does the same, a place for a
//! reason, and the button that does it. It needs no script.

use maud::{Markup, html};

use super::{command, format};
use crate::forgery;
use crate::visitor::Visitor;

/// An action that is offered.
pub(crate) struct Act<'a> {
    /// Where its form goes.
    pub(crate) to: &'a str,
    /// The button that opens it, and the one that does it.
    pub(crate) label: &'a str,
    pub(crate) confirm: &'a str,
    /// What it is about, for those who hear the page: `lane 42`.
    pub(crate) of: &'a str,
    pub(crate) explains: &'a str,
    /// Whether something is passed over for good.
    pub(crate) is_final: bool,
    pub(crate) fields: &'a [(&'a str, &'a str)],
    pub(crate) command: &'a [&'a str],
    pub(crate) takes_reason: bool,
}

impl Act<'_> {
    /// `back`: the page that is shown afterwards.
    pub(crate) fn shown(&self, visitor: &Visitor, back: &str) -> Markup {
        let command = command::line(self.command);
        html! {
            details.act.final[self.is_final] name="act" {
                summary aria-label={ (self.label) ", " (format::plain(self.of)) } { (self.label) }
                form.panel method="post" action=(self.to) {
                    input type="hidden" name=(forgery::FIELD) value=(forgery::token(&visitor.key));
                    input type="hidden" name="back" value=(back);
                    @for (name, value) in self.fields { input type="hidden" name=(name) value=(value); }
                    p.what { (self.label) ": " (format::short(self.of, 120)) }
                    p { (self.explains) }
                    @if self.takes_reason {
                        label { span { "Reason, for the record" } input name="reason" maxlength="500" autocomplete="off"; }
                    }
                    p.muted.small { "The same on the command line:" }
                    (command::shown(&command))
                    button.primary.danger[self.is_final] type="submit" { (self.confirm) }
                }
            }
        }
    }
}
