// SPDX-License-Identifier: Apache-2.0
/// A NIXL-style transfer agent: a transfer backend made of others, which it opens by name.
/// [io.kvferry.multiconnector.agent.TransferAgent] is the entry; connectors open one through
/// [io.kvferry.spi.HostServices#transfers].
///
/// ```
/// open            backends by name and option, each CONFINED one on a loop of its own
/// register        memory, with every backend that takes that kind
/// localMetadata   -> to the peer, by whatever way -> its loadPeer: on all common backends, or on none
/// prepare         descriptor lists, once, on every backend that covers them
/// submit          often: the agent picks a backend, explains why, and goes on to the next when one fails
/// close           backends in reverse order, then their loops
/// ```
@NullMarked
package io.kvferry.multiconnector.agent;

import org.jspecify.annotations.NullMarked;
