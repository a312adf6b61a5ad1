//! The rules of the sources. CONTRIBUTING.md describes them.

mod calls;
mod comments;
mod layers;
mod locks;
mod modules;
mod parameters;
