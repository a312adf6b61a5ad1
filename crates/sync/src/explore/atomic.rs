//! Atomics, each operation of which is a point.

use super::scheduler::point;
use std::sync::atomic as real;
pub use std::sync::atomic::Ordering;

/// As the standard library's; a point.
#[track_caller]
pub fn fence(order: Ordering) {
    point();
    real::fence(order);
}

macro_rules! atomic {
    ($name:ident $(<$param:ident>)?, $value:ty) => {
        /// As the standard library's; each operation is a point.
        pub struct $name $(<$param>)? (real::$name $(<$param>)?);

        impl $(<$param>)? $name $(<$param>)? {
            /// One with this value.
            #[inline]
            pub const fn new(value: $value) -> Self {
                Self(real::$name::new(value))
            }
            /// Reads it.
            #[inline]
            #[track_caller]
            pub fn load(&self, order: Ordering) -> $value {
                point();
                self.0.load(order)
            }
            /// Writes it.
            #[inline]
            #[track_caller]
            pub fn store(&self, value: $value, order: Ordering) {
                point();
                self.0.store(value, order)
            }
            /// Writes it and returns what it was.
            #[inline]
            #[track_caller]
            pub fn swap(&self, value: $value, order: Ordering) -> $value {
                point();
                self.0.swap(value, order)
            }
            /// Writes `new` if it is `old`.
            ///
            /// # Errors
            /// The value, where it is another.
            #[inline]
            #[track_caller]
            pub fn compare_exchange(
                &self,
                old: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                point();
                self.0.compare_exchange(old, new, success, failure)
            }
            /// As `compare_exchange`, which never fails here without cause.
            ///
            /// # Errors
            /// The value, where it is another.
            #[inline]
            #[track_caller]
            pub fn compare_exchange_weak(
                &self,
                old: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                point();
                self.0.compare_exchange(old, new, success, failure)
            }
            /// Writes what `update` makes of it.
            ///
            /// # Errors
            /// The value, where `update` returns `None`.
            #[inline]
            #[track_caller]
            pub fn fetch_update(
                &self,
                set: Ordering,
                fetch: Ordering,
                mut update: impl FnMut($value) -> Option<$value>,
            ) -> Result<$value, $value> {
                let mut old = self.load(fetch);
                while let Some(new) = update(old) {
                    match self.compare_exchange_weak(old, new, set, fetch) {
                        Ok(before) => return Ok(before),
                        Err(now) => old = now,
                    }
                }
                Err(old)
            }
            /// Its value, as nobody else has it.
            #[inline]
            pub fn get_mut(&mut self) -> &mut $value {
                self.0.get_mut()
            }
            /// Its value.
            #[inline]
            pub fn into_inner(self) -> $value {
                self.0.into_inner()
            }
        }

        impl $(<$param>)? std::fmt::Debug for $name $(<$param>)? {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                self.0.fmt(f)
            }
        }
        impl $(<$param>)? Default for $name $(<$param>)? {
            fn default() -> Self {
                Self(Default::default())
            }
        }
        impl $(<$param>)? From<$value> for $name $(<$param>)? {
            fn from(value: $value) -> Self {
                Self::new(value)
            }
        }
    };
}

macro_rules! fetch {
    ($name:ident, $value:ty: $($op:ident)*) => {
        impl $name {
            $(
                /// As the standard library's.
                #[inline]
                #[track_caller]
                pub fn $op(&self, value: $value, order: Ordering) -> $value {
                    point();
                    self.0.$op(value, order)
                }
            )*
        }
    };
}

macro_rules! integers {
    ($($name:ident $value:ty),*) => {
        $(
            atomic!($name, $value);
            fetch!($name, $value: fetch_add fetch_sub fetch_and fetch_nand fetch_or fetch_xor fetch_max fetch_min);
        )*
    };
}

integers!(
    AtomicU8 u8, AtomicU16 u16, AtomicU32 u32, AtomicU64 u64, AtomicUsize usize, AtomicI64 i64, AtomicIsize isize
);
atomic!(AtomicBool, bool);
fetch!(AtomicBool, bool: fetch_and fetch_nand fetch_or fetch_xor);
atomic!(AtomicPtr<T>, *mut T);
