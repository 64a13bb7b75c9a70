// SPDX-License-Identifier: Apache-2.0
package io.kvferry.tck.faults;

import org.junit.jupiter.api.DynamicTest;
import org.junit.jupiter.api.TestFactory;

import java.util.List;
import java.util.stream.Stream;

/// The contract of transfer backends finds broken ones: each mutant fails the test that is there
/// for its defect, which the backend without the defect passes.
class BackendMutantsTest {
    private static final List<Mutation> BACKENDS =
            List.of(
                    new Mutation(
                            BackendMutants.DamagesBytes.class, "everyClaimedRouteMovesItsBytes"),
                    new Mutation(
                            BackendMutants.NotifiesTwice.class,
                            "notificationsComeAfterTheDataOnce"),
                    new Mutation(
                            BackendMutants.NeverCompletes.class,
                            "stridedDescriptorsMoveTheSameBytes"),
                    new Mutation(
                            BackendMutants.DoesWhatItDoesNotClaim.class,
                            "notificationsComeAfterTheDataOnce"),
                    new Mutation(BackendMutants.KeepsDroppedPeers.class, "droppedPeersAreRefused"),
                    new Mutation(BackendMutants.IgnoresDeadlines.class, "deadlinesEndTransfers"));

    private static final List<Mutation> BACKEND_FEATURES =
            List.of(
                    new Mutation(
                            BackendFeatureMutants.FindsStrangers.class,
                            "peersAreFoundOnceTheyAreLoaded"),
                    new Mutation(
                            BackendFeatureMutants.ManagesNothing.class,
                            "selfManagedMetadataNeedsNoOtherExchange"),
                    new Mutation(
                            BackendFeatureMutants.ExplainsByDoing.class, "explanationsMoveNothing"),
                    new Mutation(
                            BackendFeatureMutants.SelectsNothing.class, "emptyListsAreRefused"),
                    new Mutation(
                            BackendFeatureMutants.LosesSomeNotes.class,
                            "manyNotificationsArriveOnce"),
                    new Mutation(
                            BackendFeatureMutants.NotifiesAhead.class,
                            "failedTransfersDoNotNotify"),
                    new Mutation(BackendFeatureMutants.LosesAllWithOne.class, "peersDieAlone"),
                    new Mutation(
                            BackendFeatureMutants.QuiescesTooSoon.class,
                            "quiescedTransfersTouchNothing"),
                    new Mutation(BackendFeatureMutants.SaysAllMoved.class, "failuresNameWhatMoved"),
                    new Mutation(
                            BackendFeatureMutants.SaysMoreThanClaimed.class,
                            "failuresNameWhatMoved"),
                    new Mutation(
                            BackendFeatureMutants.HidesThatItNeedsItsTarget.class,
                            "targetsNeedNoTurnUnlessClaimed"),
                    new Mutation(
                            BackendFeatureMutants.SumsNothing.class, "damageOnTheWayIsNoticed"),
                    new Mutation(BackendFeatureMutants.HasNoBound.class, "fullQueuesRefuse"));

    @TestFactory
    Stream<DynamicTest> everyMutantFailsItsTest() {
        return Mutation.areFound(BackendMutants.None.class, BACKENDS);
    }

    @TestFactory
    Stream<DynamicTest> everyMutantOfAFeatureFailsItsTest() {
        return Mutation.areFound(BackendFeatureMutants.None.class, BACKEND_FEATURES);
    }
}
