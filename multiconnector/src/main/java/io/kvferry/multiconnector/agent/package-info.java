// SPDX-License-Identifier: Apache-2.0
/// A NIXL-style transfer agent: owns transfer backends, registers memory with them, exchanges
/// metadata with peers, and picks a backend for each transfer.
/// [io.kvferry.multiconnector.agent.TransferAgent] is the entry.
///
/// ```
/// open            backends by name and option, each CONFINED one on a loop of its own
/// register        memory, with every backend that takes that kind
/// localMetadata   -> to the peer, by whatever way -> its loadPeer: on all common backends, or on none
/// prepare         descriptor lists, once
/// submit          often: the agent picks a backend, explains why, and goes on to the next when one fails
/// close           stop intake, drain (bounded), close backends in reverse order, end loops
/// ```
@NullMarked
package io.kvferry.multiconnector.agent;

import org.jspecify.annotations.NullMarked;
