// SPDX-License-Identifier: Apache-2.0
/// The way in for a host: [Kvferry] reads vLLM's connector JSON, finds plugins on the class path
/// and in a plugin folder, and opens the scheduler and worker halves that a configuration names.
/// How it is wired (Guice) stays inside.
@NullMarked
package io.kvferry.multiconnector;

import org.jspecify.annotations.NullMarked;
