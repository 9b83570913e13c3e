//! Approvers that ask nobody.

use async_trait::async_trait;
use entourage_core::{
    Result,
    permission::{ApprovalRequest, Approver, Decision},
};

/// Approver that allows every call it is asked about.
#[derive(Debug, Clone, Copy, Default)]
pub struct AllowAll;

#[async_trait]
impl Approver for AllowAll {
    async fn decide(&self, _: &ApprovalRequest) -> Result<Decision> {
        Ok(Decision::Allow)
    }
}

/// Approver that refuses every call it is asked about.
#[derive(Debug, Clone, Copy, Default)]
pub struct DenyAll;

#[async_trait]
impl Approver for DenyAll {
    async fn decide(&self, _: &ApprovalRequest) -> Result<Decision> {
        Ok(Decision::Deny)
    }
}
