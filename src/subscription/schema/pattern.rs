//! Translates a regular expression of a schema (ECMA-262, of Unicode) to PostgreSQL's dialect.
//!
//! The two differ in what `.`, `\d`, `\w`, `\s` and `\b` match, and in what they refuse. So what both have is written out
//! character by character, and all else is refused: then a pattern matches the same in a producer's validator and here,
//! whatever the database's locale. Without references back and looks around, PostgreSQL matches in a time that grows with
//! the string alone; repetitions are bounded by what they unfold to.

use regex_syntax::ast::parse::ParserBuilder;
use regex_syntax::ast::{
    AssertionKind, Ast, ClassPerl, ClassPerlKind, ClassSet, ClassSetItem, ErrorKind, GroupKind,
    Literal, LiteralKind, RepetitionKind, RepetitionRange, SpecialLiteralKind,
};

/// Bytes of a pattern.
const LONGEST: usize = 1_000;
/// Groups inside each other.
const DEEPEST: u32 = 20;
/// Characters and classes, where each repetition is written out.
const LARGEST: u64 = 500;
/// PostgreSQL's own bound.
const MOST_REPETITIONS: u32 = 255;

/// What `.` leaves out in ECMA-262.
const LINE_ENDS: &str = "\\n\\r\u{2028}\u{2029}";
const SPACES: &str = "\\t\\n\\u000b\\f\\r \u{a0}\u{1680}\u{2000}-\u{200a}\u{2028}\u{2029}\u{202f}\u{205f}\u{3000}\u{feff}";

/// The pattern for PostgreSQL.
///
/// # Errors
/// Why it is refused.
pub(super) fn translate(pattern: &str) -> Result<String, String> {
    if pattern.len() > LONGEST {
        return Err(format!("a pattern has at most {LONGEST} bytes"));
    }
    let mut parser = ParserBuilder::new().nest_limit(DEEPEST).build();
    let ast = parser.parse(pattern).map_err(|error| match error.kind() {
        ErrorKind::UnsupportedLookAround => {
            "looks ahead or behind, which is not supported".to_owned()
        }
        ErrorKind::UnsupportedBackreference => {
            "refers back to a group, which is not supported".to_owned()
        }
        kind => format!("is not a regular expression that is supported: {kind}"),
    })?;
    let mut writer = Writer {
        pattern,
        text: String::new(),
    };
    let size = writer.ast(&ast)?;
    bounded(size)?;
    Ok(writer.text)
}

fn bounded(size: u64) -> Result<u64, String> {
    match size <= LARGEST {
        true => Ok(size),
        false => Err(format!(
            "its repetitions unfold to more than {LARGEST} characters"
        )),
    }
}

struct Writer<'p> {
    pattern: &'p str,
    text: String,
}

impl Writer<'_> {
    /// Writes it; returns how many characters it unfolds to.
    fn ast(&mut self, ast: &Ast) -> Result<u64, String> {
        match ast {
            Ast::Empty(_) => Ok(0),
            Ast::Literal(literal) => {
                self.text.push_str(&escaped(character(literal)?));
                Ok(1)
            }
            Ast::Dot(_) => {
                self.text.push_str(&format!("[^{LINE_ENDS}]"));
                Ok(1)
            }
            Ast::Assertion(assertion) => {
                self.text.push(match assertion.kind {
                    AssertionKind::StartLine => '^',
                    AssertionKind::EndLine => '$',
                    _ => return Err("asks for the border of a word or a text, which is not supported beside ^ and $".to_owned()),
                });
                Ok(0)
            }
            Ast::ClassPerl(class) => {
                let not = if class.negated { "^" } else { "" };
                self.text.push_str(&format!("[{not}{}]", perl(class)));
                Ok(1)
            }
            Ast::ClassBracketed(class) => {
                let mut inside = String::new();
                match &class.kind {
                    ClassSet::Item(item) => class_item(item, &mut inside)?,
                    ClassSet::BinaryOp(_) => {
                        return Err("has &&, -- or ~~ in a class: write \\&, \\- or \\~".to_owned());
                    }
                }
                let not = if class.negated { "^" } else { "" };
                self.text.push_str(&format!("[{not}{inside}]"));
                Ok(1)
            }
            Ast::Repetition(repetition) => {
                if matches!(
                    *repetition.ast,
                    Ast::Repetition(_) | Ast::Assertion(_) | Ast::Empty(_)
                ) {
                    return Err("repeats what cannot be repeated".to_owned());
                }
                self.text.push_str("(?:");
                let size = self.ast(&repetition.ast)?;
                self.text.push(')');
                let written =
                    &self.pattern[repetition.op.span.start.offset..repetition.op.span.end.offset];
                if written.starts_with("{,") {
                    return Err("has {,n}: write {0,n}".to_owned());
                }
                // Whether it is lazy is no question of whether it matches.
                let times = self.times(&repetition.op.kind)?;
                bounded(size.saturating_mul(times))
            }
            Ast::Group(group) => {
                let is_plain = match &group.kind {
                    GroupKind::CaptureIndex(_) => true,
                    GroupKind::CaptureName { starts_with_p, .. } => !starts_with_p,
                    GroupKind::NonCapturing(flags) => flags.items.is_empty(),
                };
                if !is_plain {
                    return Err("has flags in a group, which are not supported".to_owned());
                }
                self.text.push_str("(?:");
                let size = self.ast(&group.ast)?;
                self.text.push(')');
                Ok(size)
            }
            Ast::Alternation(alternation) => {
                let mut size = 0;
                for (index, ast) in alternation.asts.iter().enumerate() {
                    if index > 0 {
                        self.text.push('|');
                    }
                    size = bounded(size + self.ast(ast)?)?;
                }
                Ok(size)
            }
            Ast::Concat(concat) => {
                let mut size = 0;
                for ast in &concat.asts {
                    size = bounded(size + self.ast(ast)?)?;
                }
                Ok(size)
            }
            Ast::ClassUnicode(_) => Err("has \\p, which is not supported".to_owned()),
            Ast::Flags(_) => Err("has flags, which are not supported".to_owned()),
        }
    }

    /// Writes how often; returns what that multiplies the size by.
    fn times(&mut self, kind: &RepetitionKind) -> Result<u64, String> {
        let (least, most) = match kind {
            RepetitionKind::ZeroOrOne => {
                self.text.push('?');
                return Ok(1);
            }
            RepetitionKind::ZeroOrMore => {
                self.text.push('*');
                return Ok(1);
            }
            RepetitionKind::OneOrMore => {
                self.text.push('+');
                return Ok(2);
            }
            RepetitionKind::Range(RepetitionRange::Exactly(times)) => (*times, Some(*times)),
            RepetitionKind::Range(RepetitionRange::AtLeast(times)) => (*times, None),
            RepetitionKind::Range(RepetitionRange::Bounded(least, most)) => (*least, Some(*most)),
        };
        if least > MOST_REPETITIONS || most.is_some_and(|most| most > MOST_REPETITIONS) {
            return Err(format!(
                "repeats more than {MOST_REPETITIONS} times: use minLength and maxLength"
            ));
        }
        let most_written = most.map(|most| most.to_string()).unwrap_or_default();
        self.text.push_str(&format!("{{{least},{most_written}}}"));
        Ok(u64::from(most.unwrap_or(least + 1)).max(1))
    }
}

fn class_item(item: &ClassSetItem, text: &mut String) -> Result<(), String> {
    match item {
        ClassSetItem::Literal(literal) => text.push_str(&escaped(character(literal)?)),
        ClassSetItem::Range(range) => {
            let (first, last) = (ranged(&range.start)?, character(&range.end)?);
            text.push_str(&format!("{}-{}", escaped(first), escaped(last)));
        }
        ClassSetItem::Perl(class) if !class.negated => text.push_str(perl(class)),
        ClassSetItem::Union(union) => {
            for item in &union.items {
                class_item(item, text)?;
            }
        }
        ClassSetItem::Bracketed(_) => {
            return Err("has [ in a class: write \\[".to_owned());
        }
        ClassSetItem::Empty(_)
        | ClassSetItem::Perl(_)
        | ClassSetItem::Ascii(_)
        | ClassSetItem::Unicode(_) => {
            return Err(
                "has a class in a class that is not supported: \\d, \\w and \\s are".to_owned(),
            );
        }
    }
    Ok(())
}

fn perl(class: &ClassPerl) -> &'static str {
    match class.kind {
        ClassPerlKind::Digit => "0-9",
        ClassPerlKind::Space => SPACES,
        ClassPerlKind::Word => "A-Za-z0-9_",
    }
}

fn character(literal: &Literal) -> Result<char, String> {
    if literal.kind == LiteralKind::Special(SpecialLiteralKind::Bell) {
        return Err("has \\a, which is not supported".to_owned());
    }
    match literal.c {
        '\0' => Err("contains \\u0000, which Postgres cannot store".to_owned()),
        character => Ok(character),
    }
}

/// The beginning of a range: \u0000 comes nowhere, so the range may begin behind it.
fn ranged(literal: &Literal) -> Result<char, String> {
    match literal.c {
        '\0' => Ok('\u{1}'),
        _ => character(literal),
    }
}

fn escaped(character: char) -> String {
    match character {
        character if character.is_ascii_alphanumeric() || character == '_' => character.to_string(),
        character if character.is_ascii_control() => format!("\\u{:04x}", u32::from(character)),
        character if character.is_ascii() => format!("\\{character}"),
        character => character.to_string(),
    }
}
