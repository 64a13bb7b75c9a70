// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.te;

import io.kvferry.spi.KvFerryException;

/// A permission to write into parts of registered memory, for one transfer. It permits no READ.
///
/// The owner of the memory hands [#token] to the writing peer, which names it in
/// [TransferRequest#capability]. A write that names a token is applied only while the grant is open
/// and only inside what it covers, so that a late write into a block that was given to somebody
/// else is refused. Native peers cannot name a token: their writes into memory of [Access#GRANTED]
/// are applied only where a grant for any peer is open, and their writes into [Access#OPEN] memory
/// are not affected.
///
/// Threading: any thread.
public interface WriteGrant extends AutoCloseable {
    /// Who may write under a grant.
    enum Writers {
        /// Who names the token.
        TOKEN,

        /// Everybody, with the token or without: for peers that know no tokens.
        ANY
    }

    /// Never 0; not guessable.
    long token();

    /// Ends the permission. On return no write under it touches the memory any more; a writer in
    /// the middle of one is cut off. Every caller awaits the same end; after a failure a further
    /// call tries again.
    ///
    /// @throws KvFerryException [ErrorCode#TIMEOUT] when a process of this host was stopped in the
    ///   middle of a copy and may still touch the memory, which must not be reused then
    @Override
    void close();
}
