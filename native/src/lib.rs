//! Decodes dumps straight into the columns of a case.
//!
//! `src/unhang/ingest/native` calls these functions through ctypes and checks what it can of every
//! argument. Everything behind this file is safe Rust; a panic in it ends in a status, not in the
//! process. What is unusual about a file is left to the Python reader, which is the reference.
#![deny(unsafe_op_in_unsafe_fn)]

mod cuts;
mod grammar;
mod interning;
mod json;
mod keys;
mod memory;
mod pickles;
mod reading;
mod rows;
mod templates;
mod values;

use std::ffi::c_void;
use std::os::raw::c_char;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::path::Path;
use std::slice;

use memory::Memory;
use reading::{Columns, Numbers, Outcome, Source};

const FAILED: i32 = 1;

/// Of the sources that this was built from; the build script sets it.
const FINGERPRINT: &str = match option_env!("UNHANG_FINGERPRINT") {
    Some(text) => text,
    None => "",
};

/// A list that Rust owns, or one that Python does: valid until the next call.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct View {
    start: *const c_void,
    length: usize,
}

impl View {
    fn of<T>(list: &[T]) -> Self {
        View { start: list.as_ptr().cast(), length: list.len() }
    }
}

/// One memory for each thread.
pub struct Reader {
    memories: Vec<Memory>,
}

/// Copy the fingerprint into a buffer; returns its length.
///
/// # Safety
/// `buffer` has room for `room` bytes.
#[no_mangle]
pub unsafe extern "C" fn unhang_fingerprint(buffer: *mut c_char, room: usize) -> usize {
    let count = FINGERPRINT.len().min(room);
    // SAFETY: the caller promises the room, and a constant does not overlap with it.
    unsafe { std::ptr::copy_nonoverlapping(FINGERPRINT.as_ptr().cast(), buffer, count) };
    count
}

/// Make a reader with so many threads.
#[no_mangle]
pub extern "C" fn unhang_open(threads: usize) -> *mut Reader {
    std::panic::set_hook(Box::new(|_| {})); // a panic is a status, and nothing on stderr
    let memories = (0..threads.clamp(1, 64)).map(|_| Memory::new()).collect();
    Box::into_raw(Box::new(Reader { memories }))
}

/// Free a reader.
///
/// # Safety
/// `reader` is from `unhang_open` and is not used again.
#[no_mangle]
pub unsafe extern "C" fn unhang_close(reader: *mut Reader) {
    // SAFETY: the caller promises that this is the one Box that `unhang_open` gave away.
    drop(unsafe { Box::from_raw(reader) });
}

/// Decode files, which replaces what the call before has decoded.
///
/// # Safety
/// `reader` is from `unhang_open` and used by one thread at a time; `paths` and `sizes` have
/// `count` elements, and `outcomes` has room for as many.
#[no_mangle]
pub unsafe extern "C" fn unhang_decode(
    reader: *mut Reader,
    paths: *const View,
    sizes: *const u64,
    outcomes: *mut Outcome,
    count: usize,
) -> i32 {
    // SAFETY: as promised by the caller, who keeps all of it alive and unchanged during the call.
    let (reader, paths, sizes, outcomes) = unsafe {
        (&mut *reader, list(paths, count), list(sizes, count), list_mut(outcomes, count))
    };
    // SAFETY: the caller promises that each view is one of its own paths.
    let paths = paths.iter().map(|path| unsafe { list(path.start.cast::<u8>(), path.length) });
    let sources: Option<Vec<Source>> = paths
        .zip(sizes)
        .map(|(path, &size)| path_of(path).map(|path| Source::File { path, size }))
        .collect();
    run(|| sources.map(|sources| reading::decode(&mut reader.memories, &sources, outcomes)))
}

/// Decode one file that lies in memory, which replaces what the call before has decoded.
///
/// # Safety
/// `reader` is from `unhang_open` and used by one thread at a time; `bytes` has `length` elements,
/// and `outcome` has room for one.
#[no_mangle]
pub unsafe extern "C" fn unhang_decode_bytes(
    reader: *mut Reader,
    bytes: *const u8,
    length: usize,
    outcome: *mut Outcome,
) -> i32 {
    // SAFETY: as promised by the caller, who keeps all of it alive and unchanged during the call.
    let (reader, bytes, outcome) =
        unsafe { (&mut *reader, list(bytes, length), list_mut(outcome, 1)) };
    let sources = [Source::Bytes(bytes)];
    run(|| {
        reading::decode(&mut reader.memories, &sources, outcome);
        Some(())
    })
}

/// What a memory has met and decoded: strings, text, nodes, children, the distinct names,
/// signatures, stacks, threads and groups, and the pairs, threads and groups in use of the last batch.
///
/// # Safety
/// `reader` is from `unhang_open`; `views` has room for 12. The views are valid until it is used
/// again.
#[no_mangle]
pub unsafe extern "C" fn unhang_views(
    reader: *const Reader,
    index: usize,
    views: *mut View,
) -> i32 {
    // SAFETY: as promised by the caller.
    let (reader, views) = unsafe { (&*reader, list_mut(views, 12)) };
    run(|| {
        let memory = reader.memories.get(index)?;
        let known = &memory.dictionaries;
        views.copy_from_slice(&[
            View::of(&memory.texts.all),
            View::of(&memory.texts.bytes),
            View::of(&memory.nodes.all),
            View::of(&memory.nodes.children),
            View::of(&known.names.list),
            View::of(&known.signatures.list),
            View::of(&known.stacks.list),
            View::of(&known.threads.list),
            View::of(&known.groups.list),
            View::of(&memory.tops),
            View::of(&memory.threads),
            View::of(&memory.groups),
        ]);
        Some(())
    })
}

/// Write the rows that were decoded last into columns of the case.
///
/// # Safety
/// `reader` is from `unhang_open`; `outcomes` are the `count` that its last call has made;
/// `columns` are one for each of `Columns`, in its order and types, each with room for `rows`;
/// `tables` are five for each memory: names, signatures, stacks, groups, and the batch's threads.
#[no_mangle]
pub unsafe extern "C" fn unhang_write(
    reader: *const Reader,
    outcomes: *const Outcome,
    count: usize,
    columns: *const *mut c_void,
    rows: usize,
    tables: *const View,
) -> i32 {
    // SAFETY: as promised by the caller.
    let (reader, outcomes) = unsafe { (&*reader, list(outcomes, count)) };
    let made: usize = reader.memories.iter().map(|memory| memory.rows.len()).sum();
    if made != rows {
        return FAILED;
    }
    // SAFETY: the caller promises five tables for each memory, alive during the call.
    let tables = unsafe { list(tables, 5 * reader.memories.len()) };
    // SAFETY: the same; each is a list of 32-bit numbers.
    let table = |view: &View| unsafe { list(view.start.cast::<i32>(), view.length) };
    let numbers: Vec<Numbers> = tables
        .chunks_exact(5)
        .map(|of| Numbers {
            names: table(&of[0]),
            signatures: table(&of[1]),
            stacks: table(&of[2]),
            groups: table(&of[3]),
            threads: table(&of[4]),
        })
        .collect();
    // SAFETY: the caller promises the columns: distinct, in this order, with room for the rows.
    let columns = unsafe { columns_at(list(columns, 18), rows) };
    run(|| reading::write(&reader.memories, outcomes, columns, &numbers).ok())
}

/// # Safety
/// There are 18 columns, in the order and of the types of `Columns`, with room for `rows` each.
unsafe fn columns_at<'a>(at: &[*mut c_void], rows: usize) -> Columns<'a> {
    // SAFETY: as promised by the caller, and each is turned into one slice only.
    unsafe {
        Columns {
            name: list_mut(at[0].cast(), rows),
            signature: list_mut(at[1].cast(), rows),
            stack: list_mut(at[2].cast(), rows),
            thread: list_mut(at[3].cast(), rows),
            record_id: list_mut(at[4].cast(), rows),
            seq: list_mut(at[5].cast(), rows),
            p2p_seq: list_mut(at[6].cast(), rows),
            op_id: list_mut(at[7].cast(), rows),
            state: list_mut(at[8].cast(), rows),
            retired: list_mut(at[9].cast(), rows),
            is_p2p: list_mut(at[10].cast(), rows),
            created_ns: list_mut(at[11].cast(), rows),
            started_ns: list_mut(at[12].cast(), rows),
            completed_ns: list_mut(at[13].cast(), rows),
            duration_ms: list_mut(at[14].cast(), rows),
            timeout_ms: list_mut(at[15].cast(), rows),
            pg: list_mut(at[16].cast(), rows),
            pg_id: list_mut(at[17].cast(), rows),
        }
    }
}

/// Whether something went through: neither a failure nor a panic.
fn run(action: impl FnOnce() -> Option<()>) -> i32 {
    match catch_unwind(AssertUnwindSafe(action)) {
        Ok(Some(())) => 0,
        _ => FAILED,
    }
}

/// # Safety
/// `start` points to `length` elements that nobody changes meanwhile.
unsafe fn list<'a, T>(start: *const T, length: usize) -> &'a [T] {
    if length == 0 {
        return &[];
    }
    // SAFETY: as promised by the caller; an empty list may come with any pointer.
    unsafe { slice::from_raw_parts(start, length) }
}

/// # Safety
/// `start` points to `length` elements that nobody else looks at meanwhile.
unsafe fn list_mut<'a, T>(start: *mut T, length: usize) -> &'a mut [T] {
    if length == 0 {
        return &mut [];
    }
    // SAFETY: as promised by the caller; an empty list may come with any pointer.
    unsafe { slice::from_raw_parts_mut(start, length) }
}

#[cfg(unix)]
fn path_of(bytes: &[u8]) -> Option<&Path> {
    use std::os::unix::ffi::OsStrExt;
    Some(Path::new(std::ffi::OsStr::from_bytes(bytes)))
}

#[cfg(not(unix))]
fn path_of(bytes: &[u8]) -> Option<&Path> {
    std::str::from_utf8(bytes).ok().map(Path::new)
}
