//! Writes commands as RESP arrays of bulk strings.

/// Appends the header of an array, with the number of its elements.
pub(crate) fn push_array(out: &mut Vec<u8>, elements: usize) {
    push_header(out, b'*', elements);
}

fn push_header(out: &mut Vec<u8>, tag: u8, count: usize) {
    // Nearly all arguments are shorter than 100 bytes, and a fixed length is copied without a call.
    match count as u8 {
        _ if count > 99 => {
            out.push(tag);
            out.extend_from_slice(itoa::Buffer::new().format(count).as_bytes());
            out.extend_from_slice(b"\r\n");
        }
        digit @ 0..=9 => out.extend_from_slice(&[tag, b'0' + digit, b'\r', b'\n']),
        two => out.extend_from_slice(&[tag, b'0' + two / 10, b'0' + two % 10, b'\r', b'\n']),
    }
}

/// Appends a bulk string and returns the offset of its bytes.
pub(crate) fn push_bulk(out: &mut Vec<u8>, bytes: &[u8]) -> usize {
    push_header(out, b'$', bytes.len());
    let start = out.len();
    out.extend_from_slice(bytes);
    out.extend_from_slice(b"\r\n");
    start
}
