// SPDX-License-Identifier: Apache-2.0
/// The engine's side of a connector: guarded calls of its scheduler half, and its transfers from
/// their start until every rank has reported them.
@NullMarked
package io.kvferry.engine.connector;

import org.jspecify.annotations.NullMarked;
