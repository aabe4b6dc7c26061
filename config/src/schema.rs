//! The JSON Schema of the file, for editors, from the same table the reader checks against.
//!
//! Built by hand instead of derived from types: only the table knows ranges, word lists and
//! modes. What a schema cannot say (two listeners that conflict) stays with the reader.

use serde_json::{Map, Value, json};

use crate::shape::{Field, Kind, Literal, Shape, table};
use crate::words::{ModeWord, Word as _};

/// The schema as formatted JSON text with a final newline.
#[must_use]
pub fn schema() -> String {
    let mut schema = object(&table::FILE);
    schema.insert("$schema".into(), "https://json-schema.org/draft/2020-12/schema".into());
    schema.insert("title".into(), "Baton".into());
    format!("{:#}\n", Value::Object(schema))
}

fn object(shape: &Shape) -> Map<String, Value> {
    let fields = || shape.fields.iter().filter(|field| !field.reserved);
    let properties: Map<String, Value> =
        fields().map(|field| (field.name.into(), property(field))).collect();
    let required: Vec<&str> =
        fields().filter(|field| field.required).map(|field| field.name).collect();
    let mut schema = Map::new();
    schema.insert("type".into(), "object".into());
    schema.insert("description".into(), shape.doc.into());
    schema.insert("properties".into(), Value::Object(properties));
    schema.insert("additionalProperties".into(), false.into());
    if !required.is_empty() {
        schema.insert("required".into(), required.into());
    }
    let conditions = conditions(shape);
    if !conditions.is_empty() {
        schema.insert("allOf".into(), conditions.into());
    }
    schema
}

/// Fields that are legal in some modes only, of a rule and of its targets.
fn conditions(shape: &Shape) -> Vec<Value> {
    let Some(targets) = shape.field("targets") else { return Vec::new() };
    let mut conditions = Vec::new();
    for field in shape.fields.iter().filter(|field| !field.modes.is_empty()) {
        conditions.push(condition(json!({ "required": [field.name] }), field.modes));
    }
    if let Kind::List { item: Kind::Object(target), .. } = &targets.kind {
        for field in target.fields.iter().filter(|field| !field.modes.is_empty()) {
            let mut present = json!({ "required": [field.name] });
            if matches!(field.kind, Kind::Text { .. }) {
                // An empty text is as good as none.
                present["properties"] = json!({ field.name: { "minLength": 1 } });
            }
            let some = json!({
                "required": ["targets"],
                "properties": { "targets": { "contains": present } },
            });
            conditions.push(condition(some, field.modes));
        }
    }
    conditions
}

fn condition(when: Value, modes: &[ModeWord]) -> Value {
    let modes: Vec<&str> = modes.iter().map(|mode| mode.name()).collect();
    json!({ "if": when, "then": { "properties": { "mode": { "enum": modes } } } })
}

fn property(field: &Field) -> Value {
    let mut schema = kind(&field.kind);
    if field.nullable {
        schema = Map::from_iter([("anyOf".into(), json!([schema, { "type": "null" }]))]);
    }
    let modes: Vec<&str> = field.modes.iter().map(|mode| mode.name()).collect();
    let doc = match modes.as_slice() {
        [] => field.doc.to_owned(),
        modes => format!("{} Only in mode {}.", field.doc, modes.join(", ")),
    };
    schema.insert("description".into(), doc.into());
    if let Some(default) = field.default {
        schema.insert("default".into(), literal(default));
    }
    Value::Object(schema)
}

fn kind(kind: &Kind) -> Map<String, Value> {
    let Value::Object(schema) = (match kind {
        Kind::Bool => json!({ "type": "boolean" }),
        Kind::Text { max, pattern } => {
            let mut schema = json!({ "type": "string", "maxLength": max });
            if let Some(pattern) = pattern {
                schema["pattern"] = (*pattern).into();
            }
            schema
        }
        Kind::Integer { min, max } => json!({ "type": "integer", "minimum": min, "maximum": max }),
        Kind::Duration { min, max } => json!({
            "anyOf": [
                { "type": "integer", "minimum": min, "maximum": max },
                { "type": "string", "pattern": "^([0-9]+ *[a-z]+ *)+$" },
            ],
        }),
        Kind::Word(words) => {
            let mut names = (words.names)();
            if words.any_case {
                let pattern = names.iter().map(|name| any_case(name)).collect::<Vec<_>>().join("|");
                names.sort_unstable();
                json!({ "anyOf": [{ "enum": names }, { "type": "string", "pattern": format!("^({pattern})$") }] })
            } else {
                json!({ "enum": names })
            }
        }
        Kind::Object(shape) => Value::Object(object(shape)),
        Kind::List { item, min, max } => {
            json!({ "type": "array", "items": self::kind(item), "minItems": min, "maxItems": max })
        }
        Kind::Map { value, min, max } => json!({
            "type": "object",
            "additionalProperties": self::kind(value),
            "minProperties": min,
            "maxProperties": max,
        }),
    }) else {
        return Map::new();
    };
    schema
}

/// A pattern for a word in any case: the dialect of schemas has no flag for it.
fn any_case(word: &str) -> String {
    word.chars().map(|c| format!("[{}{c}]", c.to_ascii_uppercase())).collect()
}

fn literal(literal: Literal) -> Value {
    match literal {
        Literal::Bool(value) => value.into(),
        Literal::Integer(value) | Literal::Millis(value) => value.into(),
        Literal::Text(value) | Literal::Word(value) => value.into(),
    }
}
