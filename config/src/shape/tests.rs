//! The table must be right about itself: the reader trusts it.

use super::{Field, Kind, Literal, Shape, table};

fn every_field(shape: &'static Shape, visit: &mut impl FnMut(&'static Field)) {
    for field in shape.fields {
        visit(field);
        every_kind(&field.kind, visit);
    }
}

fn every_kind(kind: &'static Kind, visit: &mut impl FnMut(&'static Field)) {
    match kind {
        Kind::Object(shape) => every_field(shape, visit),
        Kind::List { item, .. } => every_kind(item, visit),
        Kind::Map { value, .. } => every_kind(value, visit),
        Kind::Bool
        | Kind::Text { .. }
        | Kind::Integer { .. }
        | Kind::Duration { .. }
        | Kind::Word(_) => {}
    }
}

#[test]
fn every_default_is_a_legal_value_of_its_field() {
    let mut seen = 0;
    every_field(&table::FILE, &mut |field| {
        let Some(default) = field.default else { return };
        seen += 1;
        let legal = match (&field.kind, default) {
            (Kind::Bool, Literal::Bool(_)) => true,
            (Kind::Integer { min, max }, Literal::Integer(value)) => (*min..=*max).contains(&value),
            (Kind::Duration { min, max }, Literal::Millis(value)) => (*min..=*max).contains(&value),
            (Kind::Text { max, .. }, Literal::Text(value)) => value.len() <= *max,
            (Kind::Word(words), Literal::Word(value)) => (words.names)().contains(&value),
            _ => false,
        };
        assert!(legal, "{}", field.name);
    });
    assert!(seen > 30, "{seen}");
}

#[test]
fn every_field_is_named_once_and_described() {
    fn unique(shape: &'static Shape) {
        for (index, field) in shape.fields.iter().enumerate() {
            assert!(!field.doc.is_empty() && !shape.doc.is_empty(), "{}", field.name);
            assert!(shape.fields[..index].iter().all(|other| other.name != field.name));
        }
    }
    unique(&table::FILE);
    every_field(&table::FILE, &mut |field| {
        if let Kind::Object(shape) | Kind::List { item: Kind::Object(shape), .. } = &field.kind {
            unique(shape);
        }
    });
}
