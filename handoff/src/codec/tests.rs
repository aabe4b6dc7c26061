use super::*;
use proptest::prelude::*;

fn field(tag: u16, flags: u16, value: &[u8]) -> Vec<u8> {
    let len = u32::try_from(value.len()).unwrap();
    [&tag.to_le_bytes()[..], &flags.to_le_bytes(), &len.to_le_bytes(), value].concat()
}

/// Reads a body of one field, tag 1, a `u64`.
fn read(body: &[u8]) -> Result<u64, CodecError> {
    let mut fields = Fields::parse(body)?;
    let value = fields.take(1)?;
    fields.finish()?;
    Ok(value)
}

#[test]
fn fields_are_found_in_any_order() {
    let mut out = Writer::default();
    out.field(7, "seven").unwrap();
    out.field(1, 300u64).unwrap();
    let body = out.finish();
    let mut fields = Fields::parse(&body).unwrap();
    assert_eq!(fields.take::<u64>(1).unwrap(), 300);
    assert_eq!(fields.take::<String>(7).unwrap(), "seven");
    fields.finish().unwrap();
}

#[test]
fn an_unknown_optional_field_is_skipped_and_a_mandatory_one_refused() {
    let optional = [field(1, 1, &[5]), field(99, 0, b"new")].concat();
    assert_eq!(read(&optional).unwrap(), 5);
    let mandatory = [field(99, 1, b"new"), field(1, 1, &[5])].concat();
    assert!(matches!(read(&mandatory), Err(CodecError::Unknown(99))));
}

#[test]
fn damaged_bodies_are_refused_by_name() {
    let good = field(1, 1, &[5]);
    for len in 1..good.len() {
        assert!(matches!(read(&good[..len]), Err(CodecError::Truncated)), "{len} bytes");
    }
    assert!(matches!(read(&[]), Err(CodecError::Missing(1))));
    assert!(matches!(read(&field(1, 1, &[5, 6])), Err(CodecError::Trailing(1))));
    assert!(matches!(read(&field(1, 1, &[])), Err(CodecError::Value { tag: 1, .. })));
    assert!(matches!(read(&field(1, 2, &[5])), Err(CodecError::Flags(1))));
    assert!(matches!(read(&[&good[..], &good].concat()), Err(CodecError::Duplicate(1))));
    let mut beyond = field(1, 1, &[5]);
    beyond[4..8].copy_from_slice(&u32::MAX.to_le_bytes());
    assert!(matches!(read(&beyond), Err(CodecError::Truncated)));
    let many: Vec<u8> = (1..=65).flat_map(|tag| field(tag, 0, &[])).collect();
    assert!(matches!(read(&many), Err(CodecError::TooManyFields)));
}

#[test]
fn a_lying_length_inside_a_value_allocates_nothing() {
    // A vector of 2^60 bytes, and one of 2^28 strings, in nine bytes.
    for claimed in [1u64 << 60, 1 << 28] {
        let value = [&[253][..], &claimed.to_le_bytes()].concat();
        let body = field(1, 1, &value);
        let bytes = Fields::parse(&body).unwrap().take::<Vec<u8>>(1);
        assert!(matches!(bytes, Err(CodecError::Value { .. })), "{bytes:?}");
        let strings = Fields::parse(&body).unwrap().take::<Vec<String>>(1);
        assert!(matches!(strings, Err(CodecError::Value { .. })), "{strings:?}");
    }
}

#[test]
fn no_other_file_names_the_codec_library() {
    fn sources(folder: &std::path::Path, found: &mut Vec<std::path::PathBuf>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                sources(&path, found);
            } else if std::fs::read_to_string(&path).unwrap().contains("bincode::") {
                found.push(path);
            }
        }
    }
    let src = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut found = Vec::new();
    sources(&src, &mut found);
    found.retain(|path| !path.ends_with("codec/tests.rs"));
    assert_eq!(found, [src.join("codec.rs")]);
}

proptest! {
    #[test]
    fn arbitrary_bytes_never_panic(body: Vec<u8>) {
        let _ = read(&body);
    }

    #[test]
    fn damage_to_a_good_body_never_panics(at in 0usize..30, value: u8) {
        let mut out = Writer::default();
        out.field(1, 77_777u64).unwrap();
        out.field(2, vec!["a".to_owned(), "bc".to_owned()]).unwrap();
        let mut body = out.finish();
        let at = at % body.len();
        body[at] = value;
        if let Ok(mut fields) = Fields::parse(&body) {
            let _ = fields.take::<u64>(1);
            let _ = fields.take::<Vec<String>>(2);
            let _ = fields.finish();
        }
    }
}
