// SPDX-License-Identifier: Apache-2.0
/// Wrappers round any plugin: recording (a log of every call), scripted (a test gives the answers)
/// and faulty (throws, delays, damages, duplicates and loses on a seeded plan).
@NullMarked
package io.kvferry.tck.faults;

import org.jspecify.annotations.NullMarked;
