//! Functions of Python's that are used here, and references that are given back by themselves.
//!
//! They are declared by hand: no header of one Python version is compiled in, and no structure of
//! Python's but `PyMethodDef` is looked into. All are in the stable ABI or exported by every
//! CPython from 3.11 on; where one is missing the library does not load.

use std::os::raw::{c_char, c_int, c_longlong, c_ulong, c_void};
use std::ptr::null_mut;

/// An object of Python's.
#[repr(C)]
pub struct Object {
    opaque: [u8; 0],
}

/// Borrowed from somebody who keeps it; null where there is none.
pub type Ref = *mut Object;

pub type Method = unsafe extern "C" fn(Ref, *const Ref, isize, Ref) -> Ref;

/// `PyMethodDef`.
#[repr(C)]
pub struct MethodDef {
    pub name: *const c_char,
    pub method: Method,
    pub flags: c_int,
    pub doc: *const c_char,
}

pub const METH_FASTCALL_KEYWORDS: c_int = 0x0080 | 0x0002;

/// `PY_VECTORCALL_ARGUMENTS_OFFSET`: the element before the first argument may be written.
const OFFSET: usize = 1 << (usize::BITS - 1);

#[allow(non_upper_case_globals)]
extern "C" {
    pub static mut _Py_NoneStruct: Object;
    pub static mut _Py_TrueStruct: Object;
    pub static mut _Py_FalseStruct: Object;
    pub static mut PyList_Type: Object;
    pub static mut PyLong_Type: Object;

    fn Py_IncRef(object: Ref);
    fn Py_DecRef(object: Ref);
    fn PyObject_Type(object: Ref) -> Ref;
    fn PyObject_GetAttr(object: Ref, name: Ref) -> Ref;
    fn PyObject_Vectorcall(callable: Ref, args: *const Ref, count: usize, names: Ref) -> Ref;
    fn PyObject_VectorcallMethod(name: Ref, args: *const Ref, count: usize, names: Ref) -> Ref;
    fn PyErr_Clear();
    fn PyErr_Occurred() -> Ref;
    fn PyErr_Fetch(kind: *mut Ref, value: *mut Ref, trace: *mut Ref);
    fn PyErr_NormalizeException(kind: *mut Ref, value: *mut Ref, trace: *mut Ref);
    fn PyErr_Restore(kind: Ref, value: Ref, trace: Ref);
    fn PyLong_AsLongLong(object: Ref) -> c_longlong;
    fn PyLong_FromLongLong(value: c_longlong) -> Ref;
    fn PyLong_FromVoidPtr(pointer: *const c_void) -> Ref;
    fn PyUnicode_InternFromString(text: *const c_char) -> Ref;
    fn PyTuple_New(length: isize) -> Ref;
    fn PyTuple_SetItem(tuple: Ref, place: isize, item: Ref) -> c_int;
    fn PyTuple_GetItem(tuple: Ref, place: isize) -> Ref;
    fn PyTuple_Size(tuple: Ref) -> isize;
    fn PyList_New(length: isize) -> Ref;
    fn PyList_Append(list: Ref, item: Ref) -> c_int;
    fn PyList_Size(list: Ref) -> isize;
    fn PyList_GetItem(list: Ref, place: isize) -> Ref;
    fn PyDict_Size(dict: Ref) -> isize;
    fn PyDict_GetItemWithError(dict: Ref, key: Ref) -> Ref;
    fn PyWeakref_NewRef(object: Ref, callback: Ref) -> Ref;
    fn PyWeakref_GetObject(weak: Ref) -> Ref;
    fn PyThread_get_thread_ident() -> c_ulong;
    pub fn PyDescr_NewMethod(owner: Ref, method: *mut MethodDef) -> Ref;
    pub fn PyEval_GetFrame() -> Ref;
    pub fn PyFrame_GetBack(frame: Ref) -> Ref;
    pub fn PyFrame_GetCode(frame: Ref) -> Ref;
    pub fn PyFrame_GetLasti(frame: Ref) -> c_int;
}

/// A reference of our own.
pub struct Owned(Ref);

impl Owned {
    /// Take over a reference that a function returned; None, and no error left, where it failed.
    ///
    /// # Safety
    /// The reference is new, or null.
    pub unsafe fn taken(object: Ref) -> Option<Self> {
        if object.is_null() {
            forget_error();
            return None;
        }
        Some(Owned(object))
    }

    /// One more reference to what somebody keeps.
    ///
    /// # Safety
    /// It is an object that is alive.
    pub unsafe fn of(object: Ref) -> Self {
        unsafe { Py_IncRef(object) };
        Owned(object)
    }

    pub fn get(&self) -> Ref {
        self.0
    }

    /// Hand the reference to somebody else.
    pub fn given(self) -> Ref {
        let object = self.0;
        std::mem::forget(self);
        object
    }
}

impl Clone for Owned {
    fn clone(&self) -> Self {
        unsafe { Owned::of(self.0) }
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        unsafe { Py_DecRef(self.0) }
    }
}

// All of the following need the GIL and objects that are alive. What can fail clears Python's
// error and says so by None or false: the caller then goes the long way.

pub fn none() -> Ref {
    #[allow(unused_unsafe)] // older compilers want it
    unsafe {
        std::ptr::addr_of_mut!(_Py_NoneStruct)
    }
}

pub fn truth() -> Ref {
    #[allow(unused_unsafe)] // older compilers want it
    unsafe {
        std::ptr::addr_of_mut!(_Py_TrueStruct)
    }
}

pub fn untruth() -> Ref {
    #[allow(unused_unsafe)] // older compilers want it
    unsafe {
        std::ptr::addr_of_mut!(_Py_FalseStruct)
    }
}

pub fn forget_error() {
    unsafe { PyErr_Clear() }
}

/// Whether an object's type is exactly this one.
pub unsafe fn is_exactly(object: Ref, kind: Ref) -> bool {
    unsafe {
        let found = PyObject_Type(object);
        Py_DecRef(found); // the object keeps its type
        found == kind
    }
}

pub unsafe fn is_int(object: Ref) -> bool {
    unsafe { is_exactly(object, std::ptr::addr_of_mut!(PyLong_Type)) }
}

pub unsafe fn is_list(object: Ref) -> bool {
    unsafe { is_exactly(object, std::ptr::addr_of_mut!(PyList_Type)) }
}

/// How many items a list has.
pub unsafe fn list_length(list: Ref) -> usize {
    unsafe { usize::try_from(PyList_Size(list)).unwrap_or(0) }
}

/// An item of a list, borrowed.
pub unsafe fn list_item(list: Ref, place: usize) -> Ref {
    unsafe { PyList_GetItem(list, place as isize) }
}

/// The only element of a list, borrowed; null where it is no list of one.
pub unsafe fn only_one(object: Ref) -> Ref {
    unsafe {
        if !is_list(object) || PyList_Size(object) != 1 {
            return null_mut();
        }
        PyList_GetItem(object, 0)
    }
}

/// The first element of a list, or of a list of lists; any other object itself; null for none.
pub unsafe fn first_of(object: Ref) -> Ref {
    let mut found = object;
    for _ in 0..2 {
        unsafe {
            if !is_list(found) {
                break;
            }
            if PyList_Size(found) == 0 {
                return null_mut();
            }
            found = PyList_GetItem(found, 0);
        }
    }
    found
}

pub unsafe fn attribute(object: Ref, name: Ref) -> Option<Owned> {
    unsafe { Owned::taken(PyObject_GetAttr(object, name)) }
}

pub unsafe fn number_of(object: Ref, name: Ref) -> Option<i64> {
    unsafe { whole(attribute(object, name)?.get()) }
}

pub unsafe fn whole(object: Ref) -> Option<i64> {
    unsafe {
        let value = PyLong_AsLongLong(object);
        if value == -1 && !PyErr_Occurred().is_null() {
            forget_error();
            return None;
        }
        Some(value)
    }
}

pub unsafe fn integer(value: i64) -> Option<Owned> {
    unsafe { Owned::taken(PyLong_FromLongLong(value)) }
}

pub unsafe fn tuple_of(items: Vec<Owned>) -> Option<Owned> {
    unsafe {
        let tuple = Owned::taken(PyTuple_New(items.len() as isize))?;
        for (place, item) in items.into_iter().enumerate() {
            PyTuple_SetItem(tuple.get(), place as isize, item.given());
        }
        Some(tuple)
    }
}

pub unsafe fn pair(first: Owned, second: Owned) -> Option<Owned> {
    unsafe {
        let tuple = Owned::taken(PyTuple_New(2))?;
        PyTuple_SetItem(tuple.get(), 0, first.given());
        PyTuple_SetItem(tuple.get(), 1, second.given());
        Some(tuple)
    }
}

pub unsafe fn listed(items: Vec<Owned>) -> Option<Owned> {
    unsafe {
        let list = Owned::taken(PyList_New(0))?;
        for item in items {
            if PyList_Append(list.get(), item.get()) != 0 {
                forget_error();
                return None;
            }
        }
        Some(list)
    }
}

pub fn this_thread() -> i64 {
    unsafe { PyThread_get_thread_ident() as i64 }
}

/// A weak reference that calls somebody when the object goes.
pub unsafe fn weak(object: Ref, callback: Ref) -> Option<Owned> {
    unsafe { Owned::taken(PyWeakref_NewRef(object, callback)) }
}

/// Whether a weak reference is to this object, which is alive.
pub unsafe fn is_to(weak: Ref, object: Ref) -> bool {
    unsafe { PyWeakref_GetObject(weak) == object }
}

/// What `id()` says of an object.
pub unsafe fn identity(object: Ref) -> Option<Owned> {
    unsafe { Owned::taken(PyLong_FromVoidPtr(object as *const c_void)) }
}

/// An empty tuple.
pub unsafe fn nothing() -> Option<Owned> {
    unsafe { Owned::taken(PyTuple_New(0)) }
}

pub unsafe fn length_of(tuple: Ref) -> usize {
    unsafe { usize::try_from(PyTuple_Size(tuple)).unwrap_or(0) }
}

pub unsafe fn item(tuple: Ref, place: usize) -> Ref {
    unsafe { PyTuple_GetItem(tuple, place as isize) }
}

pub unsafe fn found_in(dict: Ref, key: Ref) -> Option<Owned> {
    let found = unsafe { PyDict_GetItemWithError(dict, key) };
    if found.is_null() {
        forget_error();
        return None;
    }
    Some(unsafe { Owned::of(found) })
}

pub unsafe fn is_empty(dict: Ref) -> bool {
    unsafe { PyDict_Size(dict) <= 0 }
}

/// A string that Python keeps; `name` ends with a zero byte.
pub unsafe fn interned(name: &'static [u8]) -> Option<Owned> {
    unsafe { Owned::taken(PyUnicode_InternFromString(name.as_ptr().cast())) }
}

pub unsafe fn method_0(object: Ref, name: Ref) -> Option<Owned> {
    let args = [null_mut(), object];
    let first = unsafe { args.as_ptr().add(1) };
    unsafe { Owned::taken(PyObject_VectorcallMethod(name, first, 1 | OFFSET, null_mut())) }
}

/// Call something with a few positional arguments; an error is forgotten.
pub unsafe fn call(callable: Ref, args: &[Ref]) -> Option<Owned> {
    unsafe { Owned::taken(PyObject_Vectorcall(callable, args.as_ptr(), args.len(), null_mut())) }
}

const MOST_ARGUMENTS: usize = 12;

/// Call a method that is a plain function: the object comes before the arguments as they came.
///
/// # Safety
/// `args` holds `count` positional arguments and behind them one for each of `names`.
pub unsafe fn call_as_came(
    callable: Ref,
    object: Ref,
    args: *const Ref,
    count: usize,
    names: Ref,
) -> Ref {
    unsafe {
        let all = count + if names.is_null() { 0 } else { length_of(names) };
        let mut few = [null_mut(); MOST_ARGUMENTS + 2];
        let mut many = Vec::new();
        let place: *mut Ref = if all <= MOST_ARGUMENTS {
            few.as_mut_ptr()
        } else {
            many.resize(all + 2, null_mut());
            many.as_mut_ptr()
        };
        *place.add(1) = object;
        if all > 0 {
            std::ptr::copy_nonoverlapping(args, place.add(2), all);
        }
        PyObject_Vectorcall(callable, place.add(1), (count + 1) | OFFSET, names)
    }
}

/// The exception that is on its way, held back while something else is called.
pub struct Raised {
    kind: Ref,
    value: Ref,
    trace: Ref,
}

impl Raised {
    pub unsafe fn held() -> Self {
        let mut held = Raised { kind: null_mut(), value: null_mut(), trace: null_mut() };
        unsafe {
            PyErr_Fetch(&mut held.kind, &mut held.value, &mut held.trace);
            PyErr_NormalizeException(&mut held.kind, &mut held.value, &mut held.trace);
        }
        held
    }

    /// The exception itself, borrowed.
    pub fn value(&self) -> Ref {
        if self.value.is_null() {
            none()
        } else {
            self.value
        }
    }

    /// Let it go on its way.
    pub unsafe fn go_on(self) {
        unsafe { PyErr_Restore(self.kind, self.value, self.trace) }
    }
}
