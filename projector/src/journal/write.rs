//! Writes the rows of the journal. A block is written before the merchant's books change: the balances at its end are the
//! books and the changes of the batch until then.

use farthing_core::accounts::Account;
use farthing_core::ids::{CustomerId, MerchantId};
use farthing_core::partition::Partition;
use futures_util::future::join3;
use rust_decimal::Decimal;

use super::JournalBatch;
use super::fold::{Block, Places, Sums};
use crate::writer::{WriteRows, Writer, copy_rows, unnest_rows};

copy_rows! {
    INSERT_BOOKS, insert_books<'a>,
    into books,
    for id in &'a MerchantId => {
        merchant_id: text = id.to_string(),
        latest_us: int8 = i64::MIN,
        late_us: int8 = 0_i64,
        customer_balances: numeric = Decimal::ZERO,
        plan_credit: numeric = Decimal::ZERO,
        bundle_credit: numeric = Decimal::ZERO,
        merchant_wallets: numeric = Decimal::ZERO,
        payments_received: numeric = Decimal::ZERO,
        refunds: numeric = Decimal::ZERO,
        manual_credits: numeric = Decimal::ZERO,
        plan_revenue: numeric = Decimal::ZERO,
        expired_credit: numeric = Decimal::ZERO,
        provider_cost: numeric = Decimal::ZERO,
        fee_revenue: numeric = Decimal::ZERO,
        service_charge: numeric = Decimal::ZERO,
        payments_clearing: numeric = Decimal::ZERO,
        calls_clearing: numeric = Decimal::ZERO,
    }
}

unnest_rows! {
    ADD_TO_BLOCKS, add_to_blocks<'a>,
    ["INSERT INTO {schema}.blocks AS s (partition, merchant_id, block, events, kinds, first_us, last_us, latest_us, late_us, \
          customer_balances, plan_credit, bundle_credit, \
          merchant_wallets, payments_received, refunds, \
          manual_credits, plan_revenue, expired_credit, \
          provider_cost, fee_revenue, service_charge, \
          payments_clearing, calls_clearing) \
      SELECT new.partition, new.merchant_id, new.block, new.events, new.kinds, new.first_us, new.last_us, \
          GREATEST(b.latest_us, new.latest_us), \
          CASE WHEN b.latest_us > new.earliest_us \
              THEN GREATEST(b.late_us, new.late_us, b.latest_us - new.earliest_us) \
              ELSE GREATEST(b.late_us, new.late_us) END, \
          b.customer_balances + new.customer_balances, b.plan_credit + new.plan_credit, \
          b.bundle_credit + new.bundle_credit, b.merchant_wallets + new.merchant_wallets, \
          b.payments_received + new.payments_received, b.refunds + new.refunds, \
          b.manual_credits + new.manual_credits, b.plan_revenue + new.plan_revenue, \
          b.expired_credit + new.expired_credit, b.provider_cost + new.provider_cost, \
          b.fee_revenue + new.fee_revenue, b.service_charge + new.service_charge, \
          b.payments_clearing + new.payments_clearing, b.calls_clearing + new.calls_clearing \
      FROM " (rows as new) " \
      JOIN {schema}.books AS b ON b.partition = new.partition AND b.merchant_id = new.merchant_id COLLATE \"C\" \
      ON CONFLICT (partition, merchant_id, block) DO UPDATE SET events = s.events || excluded.events, \
          kinds = s.kinds | excluded.kinds, first_us = LEAST(s.first_us, excluded.first_us), \
          last_us = GREATEST(s.last_us, excluded.last_us), latest_us = excluded.latest_us, late_us = excluded.late_us, \
          customer_balances = excluded.customer_balances, plan_credit = excluded.plan_credit, \
          bundle_credit = excluded.bundle_credit, merchant_wallets = excluded.merchant_wallets, \
          payments_received = excluded.payments_received, refunds = excluded.refunds, \
          manual_credits = excluded.manual_credits, plan_revenue = excluded.plan_revenue, \
          expired_credit = excluded.expired_credit, provider_cost = excluded.provider_cost, \
          fee_revenue = excluded.fee_revenue, service_charge = excluded.service_charge, \
          payments_clearing = excluded.payments_clearing, calls_clearing = excluded.calls_clearing"],
    for ((id, number), row) in (&'a (MerchantId, i64), &'a Block) => {
        merchant_id: text = id.to_string(),
        block: int8 = *number,
        events: bytea = row.places.events.as_slice(),
        kinds: int8 = row.places.kinds.bits(),
        first_us: int8 = row.first_us,
        last_us: int8 = row.last_us,
        earliest_us: int8 = row.sums.earliest_us,
        latest_us: int8 = row.sums.latest_us,
        late_us: int8 = row.sums.late_us,
        customer_balances: numeric = row.sums.accounts[Account::CustomerBalances.index()],
        plan_credit: numeric = row.sums.accounts[Account::PlanCredit.index()],
        bundle_credit: numeric = row.sums.accounts[Account::BundleCredit.index()],
        merchant_wallets: numeric = row.sums.accounts[Account::MerchantWallets.index()],
        payments_received: numeric = row.sums.accounts[Account::PaymentsReceived.index()],
        refunds: numeric = row.sums.accounts[Account::Refunds.index()],
        manual_credits: numeric = row.sums.accounts[Account::ManualCredits.index()],
        plan_revenue: numeric = row.sums.accounts[Account::PlanRevenue.index()],
        expired_credit: numeric = row.sums.accounts[Account::ExpiredCredit.index()],
        provider_cost: numeric = row.sums.accounts[Account::ProviderCost.index()],
        fee_revenue: numeric = row.sums.accounts[Account::FeeRevenue.index()],
        service_charge: numeric = row.sums.accounts[Account::ServiceCharge.index()],
        payments_clearing: numeric = row.sums.accounts[Account::PaymentsClearing.index()],
        calls_clearing: numeric = row.sums.accounts[Account::CallsClearing.index()],
    }
}

unnest_rows! {
    ADD_TO_CUSTOMERS, add_to_customers<'a>,
    ["INSERT INTO {schema}.customer_blocks AS s (" (columns) ") SELECT " (columns) " FROM " (rows as new)
     " ON CONFLICT (partition, merchant_id, customer_id, block) \
      DO UPDATE SET events = s.events || excluded.events, kinds = s.kinds | excluded.kinds"],
    for ((id, customer, number), places) in (&'a (MerchantId, CustomerId, i64), &'a Places) => {
        merchant_id: text = id.to_string(),
        customer_id: text = customer.to_string(),
        block: int8 = *number,
        events: bytea = places.events.as_slice(),
        kinds: int8 = places.kinds.bits(),
    }
}

unnest_rows! {
    UPDATE_BOOKS, update_books<'a>,
    ["UPDATE {schema}.books AS b \
      SET latest_us = GREATEST(b.latest_us, new.latest_us), \
          late_us = CASE WHEN b.latest_us > new.earliest_us \
              THEN GREATEST(b.late_us, new.late_us, b.latest_us - new.earliest_us) \
              ELSE GREATEST(b.late_us, new.late_us) END, \
          customer_balances = b.customer_balances + new.customer_balances, plan_credit = b.plan_credit + new.plan_credit, \
          bundle_credit = b.bundle_credit + new.bundle_credit, merchant_wallets = b.merchant_wallets + new.merchant_wallets, \
          payments_received = b.payments_received + new.payments_received, refunds = b.refunds + new.refunds, \
          manual_credits = b.manual_credits + new.manual_credits, plan_revenue = b.plan_revenue + new.plan_revenue, \
          expired_credit = b.expired_credit + new.expired_credit, provider_cost = b.provider_cost + new.provider_cost, \
          fee_revenue = b.fee_revenue + new.fee_revenue, service_charge = b.service_charge + new.service_charge, \
          payments_clearing = b.payments_clearing + new.payments_clearing, calls_clearing = b.calls_clearing + new.calls_clearing \
      FROM " (rows as new) " WHERE b.partition = new.partition AND b.merchant_id = new.merchant_id COLLATE \"C\""],
    for (id, sums) in (&'a MerchantId, &'a Sums) => {
        merchant_id: text = id.to_string(),
        earliest_us: int8 = sums.earliest_us,
        latest_us: int8 = sums.latest_us,
        late_us: int8 = sums.late_us,
        customer_balances: numeric = sums.accounts[Account::CustomerBalances.index()],
        plan_credit: numeric = sums.accounts[Account::PlanCredit.index()],
        bundle_credit: numeric = sums.accounts[Account::BundleCredit.index()],
        merchant_wallets: numeric = sums.accounts[Account::MerchantWallets.index()],
        payments_received: numeric = sums.accounts[Account::PaymentsReceived.index()],
        refunds: numeric = sums.accounts[Account::Refunds.index()],
        manual_credits: numeric = sums.accounts[Account::ManualCredits.index()],
        plan_revenue: numeric = sums.accounts[Account::PlanRevenue.index()],
        expired_credit: numeric = sums.accounts[Account::ExpiredCredit.index()],
        provider_cost: numeric = sums.accounts[Account::ProviderCost.index()],
        fee_revenue: numeric = sums.accounts[Account::FeeRevenue.index()],
        service_charge: numeric = sums.accounts[Account::ServiceCharge.index()],
        payments_clearing: numeric = sums.accounts[Account::PaymentsClearing.index()],
        calls_clearing: numeric = sums.accounts[Account::CallsClearing.index()],
    }
}

impl WriteRows for JournalBatch {
    async fn write_rows(batches: &[(Partition, Self)], db: &Writer<'_>) -> Result<(), tokio_postgres::Error> {
        insert_books(db, batches, |batch| batch.new.iter()).await?;
        // The blocks read the books as they are before the batch: without the preparation, the order would not be certain.
        db.prepare([ADD_TO_BLOCKS, ADD_TO_CUSTOMERS, UPDATE_BOOKS]).await?;
        let (blocks, customers, books) = join3(
            add_to_blocks(db, batches, |batch| batch.blocks.iter()),
            add_to_customers(db, batches, |batch| batch.customers.iter()),
            update_books(db, batches, |batch| batch.books.iter()),
        )
        .await;
        // After the first error the others only say that the transaction is aborted.
        blocks.and(customers).and(books)
    }
}
