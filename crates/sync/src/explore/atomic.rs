//! Atomics. A point precedes each operation.

use super::scheduler::point;
use std::sync::atomic as real;
pub use std::sync::atomic::Ordering;

/// The standard library's function, preceded by a point.
#[track_caller]
pub fn fence(order: Ordering) {
    point();
    real::fence(order);
}

macro_rules! atomic {
    ($name:ident $(<$param:ident>)?, $value:ty) => {
        /// The standard library's type. A point precedes each operation.
        pub struct $name $(<$param>)? (real::$name $(<$param>)?);

        impl $(<$param>)? $name $(<$param>)? {
            /// An atomic with this value.
            #[inline]
            pub const fn new(value: $value) -> Self {
                Self(real::$name::new(value))
            }
            /// Returns the value.
            #[inline]
            #[track_caller]
            pub fn load(&self, order: Ordering) -> $value {
                point();
                self.0.load(order)
            }
            /// Sets the value.
            #[inline]
            #[track_caller]
            pub fn store(&self, value: $value, order: Ordering) {
                point();
                self.0.store(value, order)
            }
            /// Sets the value and returns the old one.
            #[inline]
            #[track_caller]
            pub fn swap(&self, value: $value, order: Ordering) -> $value {
                point();
                self.0.swap(value, order)
            }
            /// Sets the value to the result of `update`.
            ///
            /// # Errors
            /// The current value, if `update` returns `None`.
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
            /// The value, which no other thread can use.
            #[inline]
            pub fn get_mut(&mut self) -> &mut $value {
                self.0.get_mut()
            }
            /// The value.
            #[inline]
            pub fn into_inner(self) -> $value {
                self.0.into_inner()
            }
        }

        compare_exchange!($name $(<$param>)?, $value: compare_exchange compare_exchange_weak);

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

macro_rules! compare_exchange {
    ($name:ident $(<$param:ident>)?, $value:ty: $($op:ident)*) => {
        impl $(<$param>)? $name $(<$param>)? {
            $(
                /// The standard library's method; it never fails spuriously.
                ///
                /// # Errors
                /// The current value, if it is not `old`.
                #[inline]
                #[track_caller]
                pub fn $op(
                    &self,
                    old: $value,
                    new: $value,
                    success: Ordering,
                    failure: Ordering,
                ) -> Result<$value, $value> {
                    point();
                    self.0.compare_exchange(old, new, success, failure)
                }
            )*
        }
    };
}

macro_rules! fetch {
    ($name:ident, $value:ty: $($op:ident)*) => {
        impl $name {
            $(
                /// The standard library's method.
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
