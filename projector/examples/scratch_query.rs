use farthing_ledger::ids::*;
use farthing_ledger::log::connect::{self, Role};
use farthing_projector::query::{Error, Page};
use farthing_projector::{checkpoint, connections, customers, requests, spend_keys, ReadModel};
#[tokio::main]
async fn main() {
    let url = std::env::args().nth(1).unwrap();
    let db = connect::connect(&url, Role::Gateway).await.unwrap();
    let r = db.query_one("SELECT merchant_id, connection_id, product_id, request_id FROM requests.opened WHERE metadata <> '{}' LIMIT 1", &[]).await.unwrap();
    let m: MerchantId = r.get::<_, &str>(0).parse().unwrap();
    let c: CustomerId = r.get::<_, &str>(1).parse().unwrap();
    let p: MeterId = r.get::<_, &str>(2).parse().unwrap();
    let rid: RequestId = r.get::<_, &str>(3).parse().unwrap();
    let foreign = MerchantId::new(Mint::default().next(chrono::Utc::now()));
    println!("{:?}", checkpoint::position(&db, ReadModel::Requests).await);
    let page = Page { cursor: None, limit: 3 };
    println!("{:#?}", requests::query::find(&db, m, rid).await.unwrap().unwrap());
    assert!(requests::query::find(&db, foreign, rid).await.unwrap().is_none());
    println!("{:#?}", customers::query::find(&db, m, &c.to_string()).await.unwrap().unwrap());
    let byref = customers::query::find(&db, m, "customer-1").await.unwrap().unwrap();
    assert!(customers::query::find(&db, m, "a\0").await.unwrap().is_none());
    assert!(customers::query::find(&db, foreign, "customer-1").await.unwrap().is_none());
    println!("{:#?}", connections::query::find(&db, m, c).await.unwrap().unwrap());
    let l = connections::query::list(&db, m, page, None).await.unwrap();
    assert!(l.items.len() == 3 && l.has_more);
    let cur = l.items[2].connection_id.to_string();
    let l2 = connections::query::list(&db, m, Page { cursor: Some(&cur), limit: 100 }, None).await.unwrap();
    assert!(l2.items.len() == 100 && l2.items.iter().all(|i| i.connection_id < l.items[2].connection_id));
    let l = connections::query::list(&db, m, Page { cursor: Some(&cur), limit: 100 }, Some("customer-1")).await.unwrap();
    assert!(l.items.len() == 1 && !l.has_more && l.items[0].connection_id == byref.customer_id);
    assert!(connections::query::list(&db, m, page, Some("customer-1")).await.unwrap().items.len() == 1);
    assert!(connections::query::list(&db, m, page, Some("\0")).await.unwrap().items.is_empty());
    assert!(matches!(connections::query::list(&db, foreign, Page { cursor: Some(&cur), limit: 100 }, None).await, Err(Error::CursorInvalid)));
    assert!(matches!(connections::query::list(&db, m, Page { cursor: Some("\0x"), limit: 100 }, None).await, Err(Error::CursorInvalid)));
    let md = requests::query::find(&db, m, rid).await.unwrap().unwrap().metadata;
    for bits in 0..16_u32 {
        let rcur = rid.to_string();
        let filter = requests::query::Filter {
            connection_id: (bits & 1 > 0).then_some(c), product_id: (bits & 2 > 0).then_some(p),
            metadata: if bits & 4 > 0 { md.clone().into_iter().collect() } else { vec![] } };
        let cursor = (bits & 8 > 0).then_some(rcur.as_str());
        let t = std::time::Instant::now();
        let l = requests::query::list(&db, m, Page { cursor, limit: 5 }, &filter).await.unwrap();
        println!("{bits:04b} {} {} {:?}", l.items.len(), l.has_more, t.elapsed());
        assert!(l.items.is_sorted_by(|a, b| (a.created_at, a.request_id) > (b.created_at, b.request_id)));
    }
    let l = requests::query::list(&db, foreign, page, &requests::query::Filter { connection_id: Some(c), ..Default::default() }).await.unwrap();
    assert!(l.items.is_empty());
    assert!(spend_keys::query::find(&db, m, SpendKeyId::new(rid.ulid())).await.unwrap().is_none());
    println!("{:?}", db.query("DELETE FROM requests.opened", &[]).await.map(|_| ()).unwrap_err().as_db_error().map(|e| e.message().to_owned()));
}
