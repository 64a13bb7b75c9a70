// SPDX-License-Identifier: Apache-2.0
/// Strict reading of msgpack messages that come from peers.
@NullMarked
package io.kvferry.toolkit.msgpack;

import org.jspecify.annotations.NullMarked;
