//! A YAML (or JSON) text as a tree whose every node knows its line and column.

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, SeqAccess, Visitor},
};
use serde_saphyr::{Location, Spanned};

use crate::cli::spec::{Fault, MAX_TEXT, Place};
use crate::model::Bytes;

#[derive(Clone, Debug)]
pub struct Node {
    pub place: Place,
    pub value: Value,
}

#[derive(Clone, Debug)]
pub enum Value {
    Null,
    Boolean(bool, String),
    /// As it was written: `1e3` stays `1e3`.
    Number(String),
    Text(String),
    List(Vec<Node>),
    Table(Vec<(String, Place, Node)>),
}

/// Reads one document. `file` is what its faults call it.
pub fn parse(file: &str, text: &str) -> Result<Node, Fault> {
    if text.len() > MAX_TEXT {
        let size = Bytes(text.len() as u64);
        return Err(Place::new(file).fault(format!("is {size} in size; at most 1M is read")));
    }
    let spanned: Spanned<Raw> =
        serde_saphyr::from_str(text).map_err(|error| parse_error(file, &error))?;
    let lines: Vec<&str> = text.lines().collect();
    Ok(Source { file, lines: &lines }.node(spanned))
}

/// A parser's complaint about `file`.
pub fn parse_error(file: &str, error: &serde_saphyr::Error) -> Fault {
    let place = error.location().map_or_else(|| Place::new(file), |it| place(file, it));
    place.fault(message_of(error))
}

/// The parser's own complaint without its place, which stands in front already.
fn message_of(error: &serde_saphyr::Error) -> String {
    let text = error.without_snippet().to_string();
    let line = text.lines().next().unwrap_or_default();
    // Neither the place nor advice to programmers.
    let end = [" at line ", ", set DuplicateKeyPolicy"].iter().filter_map(|it| line.find(it)).min();
    let end = end.unwrap_or(line.len());
    let line = line[..end].trim_end_matches([',', ':', ' ']);
    line.strip_prefix("error: ").unwrap_or(line).to_owned()
}

fn place(file: &str, location: Location) -> Place {
    Place::new(format!("{file}:{}:{}", location.line(), location.column()))
}

impl Value {
    /// For messages: what stands there.
    pub fn kind(&self) -> &'static str {
        match self {
            Value::Null => "nothing",
            Value::Boolean(..) => "a yes or no",
            Value::Number(_) => "a number",
            Value::Text(_) => "a text",
            Value::List(_) => "a list",
            Value::Table(_) => "a table of keys",
        }
    }
}

/// What the parser hands over, before places are made readable.
enum Raw {
    Null,
    Boolean(bool),
    Number,
    Text(String),
    List(Vec<Spanned<Raw>>),
    Table(Vec<(Spanned<String>, Spanned<Raw>)>),
}

struct Source<'a> {
    file: &'a str,
    lines: &'a [&'a str],
}

impl Source<'_> {
    fn node(&self, spanned: Spanned<Raw>) -> Node {
        let place = place(self.file, spanned.referenced);
        let written = || self.written(spanned.defined);
        let value = match spanned.value {
            Raw::Null => Value::Null,
            Raw::Boolean(value) => Value::Boolean(value, written()),
            Raw::Number => Value::Number(written()),
            Raw::Text(text) => Value::Text(text),
            Raw::List(items) => {
                Value::List(items.into_iter().map(|item| self.node(item)).collect())
            }
            Raw::Table(entries) => Value::Table(
                entries.into_iter().map(|(key, value)| self.entry(key, value)).collect(),
            ),
        };
        Node { place, value }
    }

    fn entry(&self, key: Spanned<String>, value: Spanned<Raw>) -> (String, Place, Node) {
        (key.value, place(self.file, key.referenced), self.node(value))
    }

    /// A plain scalar's text; it never spans lines.
    fn written(&self, location: Location) -> String {
        let line = (location.line() as usize).checked_sub(1).and_then(|line| self.lines.get(line));
        let start = (location.column() as usize).saturating_sub(1);
        let length = location.span().len() as usize;
        line.map(|line| line.chars().skip(start).take(length).collect::<String>())
            .map(|text| text.trim().to_owned())
            .unwrap_or_default()
    }
}

impl<'de> Deserialize<'de> for Raw {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(RawVisitor)
    }
}

struct RawVisitor;

impl<'de> Visitor<'de> for RawVisitor {
    type Value = Raw;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Raw, E> {
        Ok(Raw::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Raw, E> {
        Ok(Raw::Boolean(value))
    }

    fn visit_i64<E>(self, _: i64) -> Result<Raw, E> {
        Ok(Raw::Number)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Raw, E> {
        Ok(Raw::Number)
    }

    fn visit_i128<E>(self, _: i128) -> Result<Raw, E> {
        Ok(Raw::Number)
    }

    fn visit_u128<E>(self, _: u128) -> Result<Raw, E> {
        Ok(Raw::Number)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Raw, E> {
        Ok(Raw::Number)
    }

    fn visit_str<E>(self, text: &str) -> Result<Raw, E> {
        Ok(Raw::Text(text.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Raw, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(Raw::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Raw, A::Error> {
        let mut table = Vec::new();
        while let Some(entry) = entries.next_entry()? {
            table.push(entry);
        }
        Ok(Raw::Table(table))
    }
}
