// SPDX-License-Identifier: Apache-2.0
/// Drives the two halves of a KV connector through the documented life cycle without an engine, one
/// step at a time: [io.kvferry.tck.harness.ConnectorHarness].
@NullMarked
package io.kvferry.tck.harness;

import org.jspecify.annotations.NullMarked;
