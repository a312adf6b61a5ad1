//! The names of attributes: an index for the prefix, and the rest.

/// `user.`
pub const INDEX_USER: u8 = 1;
/// `system.posix_acl_access`
pub const INDEX_POSIX_ACL_ACCESS: u8 = 2;
/// `system.posix_acl_default`
pub const INDEX_POSIX_ACL_DEFAULT: u8 = 3;
/// `trusted.`
pub const INDEX_TRUSTED: u8 = 4;
/// `security.`
pub const INDEX_SECURITY: u8 = 6;
/// `system.`
pub const INDEX_SYSTEM: u8 = 7;

/// Prefixes by index. The ACL names are whole: nothing may follow them.
const PREFIXES: &[(u8, &[u8])] = &[
    (INDEX_USER, b"user."),
    (INDEX_POSIX_ACL_ACCESS, b"system.posix_acl_access"),
    (INDEX_POSIX_ACL_DEFAULT, b"system.posix_acl_default"),
    (INDEX_TRUSTED, b"trusted."),
    (INDEX_SECURITY, b"security."),
    (INDEX_SYSTEM, b"system."),
];

/// Splits a full name into its index and the rest; `None` for a name in no known namespace, or with
/// nothing after the prefix.
#[must_use]
pub fn split_name(full: &[u8]) -> Option<(u8, &[u8])> {
    for (index, prefix) in PREFIXES {
        let Some(rest) = full.strip_prefix(*prefix) else {
            continue;
        };
        let is_whole = !prefix.ends_with(b".");
        if is_whole == rest.is_empty() {
            return Some((*index, rest));
        }
    }
    None
}

/// Returns the prefix for an index; `None` if the index is unknown.
#[must_use]
pub fn prefix(index: u8) -> Option<&'static [u8]> {
    PREFIXES
        .iter()
        .find(|(known, _)| *known == index)
        .map(|(_, prefix)| *prefix)
}

/// Returns the full name of an attribute; `None` if the index is unknown.
#[must_use]
pub fn full_name(index: u8, name: &[u8]) -> Option<Vec<u8>> {
    Some([prefix(index)?, name].concat())
}
