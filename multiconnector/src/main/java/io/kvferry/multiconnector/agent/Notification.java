// SPDX-License-Identifier: Apache-2.0
package io.kvferry.multiconnector.agent;

import io.kvferry.spi.transfer.PeerId;

/// A notification that arrived, after the data that it belongs to.
///
/// @param backend by which it came
@SuppressWarnings("ArrayRecordComponent") // handed over, never compared
public record Notification(PeerId from, String backend, byte[] bytes) {}
