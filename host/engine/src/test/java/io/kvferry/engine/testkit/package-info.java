// SPDX-License-Identifier: Apache-2.0
/// Scripted connectors for the engine's own tests.
@NullMarked
package io.kvferry.engine.testkit;

import org.jspecify.annotations.NullMarked;
