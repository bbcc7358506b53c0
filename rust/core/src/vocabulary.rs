//! Token id → bytes. First cut.

/// The bytes of every token.
pub struct Vocabulary {
    /// By token id.
    pub token_bytes: Vec<Vec<u8>>,
    /// Hidden from the text.
    pub special_token_ids: Vec<u32>,
}
