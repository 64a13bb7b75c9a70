// SPDX-License-Identifier: Apache-2.0
/// What both halves and both roles share: the connector's options, and the message of the scheduler
/// half to the worker halves.
@NullMarked
package io.kvferry.backend.mooncake.p2p.common;

import org.jspecify.annotations.NullMarked;
