// SPDX-License-Identifier: Apache-2.0
/// A transfer from submit to outcome: queues, peers, and the attempt by each of the ways to the
/// peer.
@NullMarked
package io.kvferry.backend.mooncake.te.internal.transfer;

import org.jspecify.annotations.NullMarked;
